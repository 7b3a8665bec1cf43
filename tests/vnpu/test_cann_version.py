"""The CANN that torch_npu is told (VNPU_CANN), and the paths that torch_npu chooses by it.

Everything else runs under the default version. What depends on it runs here under an older one too, in a process for each:
an import decides much of it.
"""

from __future__ import annotations

import ctypes
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from ascendcl import acl, python

from torchport.vnpu import cann

OLDER, BETWEEN = "8.3.RC1", "8.5.0"
PROGRAM = Path(__file__).parent / "data" / "version_paths.py"


@pytest.mark.device
@pytest.mark.parametrize(
    ("package", "version"),
    [(b"runtime", cann.read_default_version()), (b"CANN", cann.read_default_version()), (b"driver", "26.0.RC1")],
)
def test_version(package: bytes, version: str) -> None:
    text = ctypes.create_string_buffer(128)
    acl("aclsysGetVersionStr", ctypes.c_char_p(package), text)
    assert text.value.decode() == version


@pytest.mark.device
@pytest.mark.parametrize(
    ("version", "driver"),
    [
        ("8.3.RC1", "25.3.RC1"),
        ("8.5.0.alpha003", "25.5.0"),
        ("8.5.1", "25.5.0"),
        ("9.0.0-beta.2", "26.0.RC1"),
        ("9.1.0", "26.0.RC1"),
        ("10.0.0", "26.0.RC1"),
    ],
)
def test_another_version_brings_its_driver(version: str, driver: str) -> None:
    result = python(
        """
import ctypes
from ascendcl import acl
class Version(ctypes.Structure):
    _fields_ = [("version", ctypes.c_char * 128), ("parts", ctypes.c_char * 64 * 4), ("reserved", ctypes.c_char * 128)]
found = Version()
for package in (0, 7):
    acl("aclsysGetCANNVersion", package, ctypes.byref(found))
    print(found.version.decode(), *(part.value.decode() for part in found.parts))
""",
        VNPU_CANN=version,
    )
    toolkit, hardware = result.stdout.splitlines()
    parts = version.replace("-", ".").split(".")
    assert toolkit.split() == [version, *parts[:4]], result.stderr
    assert hardware.split() == [driver, *driver.split(".")]


@pytest.mark.device
@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("9.1", "VNPU_CANN=9.1 is not a version of CANN"),
        ("latest", "VNPU_CANN=latest is not a version of CANN"),
        ("9.1.0.", "VNPU_CANN=9.1.0. is not a version of CANN"),
        ("9.1.0.gamma1", "is not a version of CANN"),
        ("8.2.RC1", "VNPU_CANN=8.2.RC1 is too old"),
    ],
)
def test_no_version(version: str, words: str) -> None:
    """Asked first, torch_npu would go on without one: so aclInit refuses it too."""
    result = python("import ascendcl; print(ascendcl.code('aclInit', 0), ascendcl.message())", VNPU_CANN=version)
    assert result.stdout.startswith("107000 ")
    assert words in result.stdout


@functools.cache
def paths(version: str) -> dict[str, dict[str, Any]]:
    """What each case of the program found, and the functions of CANN that it called."""
    result = python(PROGRAM.read_text(encoding="utf-8"), VNPU_CANN=version, VNPU_TRACE="")
    assert result.returncode == 0, result.stderr[-3000:]
    return {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}


@pytest.mark.parametrize("version", [OLDER, BETWEEN, cann.read_default_version()])
def test_pinned_segments(version: str) -> None:
    """From 8.5.0 on pinned memory may be mapped piece by piece; before, torch_npu warns and pins as ever."""
    result = python(
        """
import torch, torch_npu
small, large = torch.randn(1000).pin_memory(), torch.randn(10_000_000).pin_memory()
for pinned in (small, large):
    device = pinned.to("npu:0", non_blocking=True)
    back = torch.empty(pinned.shape).pin_memory().copy_(device, non_blocking=True)
    torch.npu.synchronize()
    print(pinned.is_pinned(), back.is_pinned(), torch.equal(back, pinned), torch.equal((device + 1).cpu(), pinned + 1))
""",
        VNPU_CANN=version,
        PYTORCH_NPU_ALLOC_CONF="pin_memory_expandable_segments:True",
    )
    assert result.stdout.split() == ["True"] * 8, result.stderr
    assert ("the current cann version does not support this feature" in result.stderr) == (version == OLDER)


CASES: dict[str, tuple[str, str]] = {  # the function that tells the path, and the first version that takes it
    "device properties": ("aclrtGetDeviceInfo", "9.0.0"),
    "norms": ("aclopCompileAndExecute", "before 9.0.0"),
    "convolution backward": ("aclnnConvolutionBackward", OLDER),
    "format cast": ("aclnnNpuFormatCast", "9.1.0"),
    "graph": ("aclrtSetStreamAttribute", "8.5.0"),
    "pinned memory": ("aclrtPointerGetAttributes", "8.5.0"),
    "pinned memory's allocation": ("aclrtMallocHostWithCfg", "9.0.0"),
    "determinism": ("aclrtSetSysParamOpt", "8.5.0"),
    "copies of lists": ("aclnnForeachCopy", "9.1.0"),
    "tokens of experts": ("aclnnMoeTokenUnpermuteGrad", OLDER),
    "routing": ("aclnnMoeInitRoutingV3", OLDER),
}


@pytest.mark.parametrize("version", [OLDER, BETWEEN, cann.read_default_version()])
@pytest.mark.parametrize("name", CASES)
def test_paths(name: str, version: str) -> None:
    found, (function, since) = paths(version)[name], CASES[name]
    assert found["wrong"] == ""
    order = [OLDER, BETWEEN, "9.0.0", "9.1.0"]
    taken = order.index(version) >= order.index(since.removeprefix("before "))
    assert (function in found["calls"]) == (taken != since.startswith("before"))
    assert paths(version)["version"]["found"] == version
