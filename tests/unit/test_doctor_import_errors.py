"""Why torchvision and torchaudio cannot be imported: errors as they were seen here and in public reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchport import cuda_builds
from torchport.doctor import Machine, extensions
from torchport.doctor.check import Check

NMS = "RuntimeError: operator torchvision::nms does not exist"
NUMPY_1 = """
A module that was compiled using NumPy 1.x cannot be run in
NumPy 2.1.0 as it may crash. To support both 1.x and 2.x
versions of NumPy, modules must be compiled with NumPy 2.0.

Traceback (most recent call last):  File "/w/train.py", line 1, in <module>
    import torchvision
  File "/usr/lib/python3.11/site-packages/torch/nn/modules/transformer.py", line 20, in <module>
    device: torch.device = torch.device(torch._C._get_default_device()),
transformer.py:20: UserWarning: Failed to initialize NumPy: _ARRAY_API not found (Triggered internally at ../utils.cpp)
"""
C_EXTENSIONS = """
  File "/tmp/np312/numpy/_core/__init__.py", line 85, in <module>
    raise ImportError(msg) from exc
ImportError:

IMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE!

Importing the numpy C-extensions failed. This error can happen for
many reasons, often due to issues with your setup or how NumPy was
installed.

Original error was: No module named 'numpy._core._multiarray_umath'
"""
DIFFERENT = (
    "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA major versions. PyTorch has "
    "CUDA Version=12.1 and torchvision has CUDA Version=11.8."
)
# The output, what the linker says of _C.so and of image.so, and what has to be in the cause and in the command.
FAILURES = {
    "CUDA, by nms": (NMS, "libc10_cuda.so: cannot open shared object file: No such file", "", "for CUDA", "--fix"),
    "CUDA, by the linker": ("OSError: libcudart.so.12: cannot open shared object file", "", "", "for CUDA", "--fix"),
    "CUDA of another release": (DIFFERENT, "", "", "another CUDA", "index"),
    "ROCm": (
        "OSError: libtorch_hip.so: cannot open shared object file",
        "",
        "",
        "ROCm",
        "pip uninstall -y torchvision",
    ),
    "another torch": (
        NMS,
        "_C.so: undefined symbol: _ZNK5torch8autograd4Node4nameEv",
        "",
        "another torch",
        "pip install",
    ),
    "another torch, image too": (
        NMS,
        "_C.so: undefined symbol: _ZN5",
        "libjpeg.so.8: cannot open",
        "another torch",
        "pip",
    ),
    "another torch, by Python": (
        "ModuleNotFoundError: No module named 'torch._six'",
        "",
        "",
        "another torch",
        "pip install",
    ),
    "a circle": (
        "AttributeError: partially initialized module 'torchvision' has no attribute 'extension' (most likely due to a "
        "circular import)",
        "",
        "",
        "another torch",
        "pip install torchvision torch==2.13.0",
    ),
    "numpy is missing": ("ModuleNotFoundError: No module named 'numpy'", "", "", "numpy is not installed", "numpy>=2"),
    "numpy of another Python": (C_EXTENSIONS, "", "", "numpy is broken", "pip uninstall -y numpy"),
    "numpy 1 beneath numpy 2's": (
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 "
        "from PyObject",
        "",
        "",
        "compiled for numpy 2",
        "numpy>=2",
    ),
    "numpy 2 beneath numpy 1's": (
        NUMPY_1 + "ImportError: numpy.core.multiarray failed to import",
        "",
        "",
        "of torch is compiled for numpy 1",
        "numpy<2",
    ),
    "an old numpy": (
        "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xe",
        "",
        "",
        "numpy is older",
        "--upgrade numpy",
    ),
    "no pillow": (
        "ModuleNotFoundError: No module named 'PIL'",
        "",
        "",
        "pillow is not installed",
        "pip install pillow",
    ),
    "libjpeg": ("ImportError: libjpeg.so.8: cannot open shared object file", "", "", "decodes images", "libjpeg"),
    "half": (
        "ImportError: cannot import name '_meta_registrations' from 'torchvision' (/x/__init__.py)",
        "",
        "",
        "half an installation",
        "pip uninstall -y torchvision",
    ),
    "a library that is cut off": (
        "OSError: /x/_C.so: file too short",
        "",
        "",
        "cut off",
        "pip uninstall -y torchvision",
    ),
    "another error": ("Traceback\nValueError: surprise\nbye", "", "", "imported: ValueError: surprise", "says more"),
    "no answer": ("(no answer within 120 s)", "", "", "no answer within", "says more"),
    "a crash": ("", "", "", "exit status -11", "says more"),
}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Check]:
    """The line on torchvision, whose import prints `output` and ends with `status`."""
    site = tmp_path / "site-packages"
    for name, version in (("torch", "2.13.0+cpu"), ("torchvision", "0.28.0+cu130")):
        (site / name).mkdir(parents=True)
        (site / f"{name}-1.dist-info").mkdir()
        (site / f"{name}-1.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        for file in ("__init__.py", "_C.so", "image.so"):
            (site / name / file).write_text("")
        (site / name / "version.py").write_text(f"__version__ = '{version}'")

    def line(output: str, status: int | None, linker: str = "", image: str = "", *, foreign: bool = False) -> Check:
        folder = site / "torchvision"
        refused = [f"linker|{folder}/{file}|{text}" for file, text in (("_C.so", linker), ("image.so", image)) if text]
        monkeypatch.setattr(cuda_builds, "find_broken_library", lambda name: folder / "_C.so" if foreign else None)
        monkeypatch.setattr(extensions, "run_python", lambda *_: ("\n".join([output, *refused]).strip(), status))
        (check,) = extensions.list_checks(Machine({}, tmp_path, tmp_path, (str(site),)), 120)
        return check

    return line


@pytest.mark.parametrize("kind", FAILURES)
def test_the_cause_is_read(kind: str, ask: Callable[..., Check]) -> None:
    output, linker, image, cause, fix = FAILURES[kind]
    for foreign in (False, True):  # that it is a CUDA build is no reason to say so
        check = ask(output, None if "no answer" in output else 1 if output else -11, linker, image, foreign=foreign)
        assert check.stops
        assert cause in check.detail and fix in check.fix
        assert ("CUDA" in check.fix) == ("--fix" in fix)


def test_an_import_that_works(ask: Callable[..., Check]) -> None:
    assert ask("version 0.28.0+cpu", 0) == Check("torchvision", True, "0.28.0+cpu")
    said = ask("version 0.28.0+cu130", 0, foreign=True)
    assert said.passed and said.detail == "0.28.0+cu130 (a CUDA build; its CPU operators are used)"


def test_an_import_that_works_without_operators_images_or_numpy(ask: Callable[..., Check]) -> None:
    operators = ask("version 0.20.1", 0, "_C.so: undefined symbol: _ZNK5torch8autograd4Node4nameEv")
    assert operators.stops and "not its operators" in operators.detail
    images = ask("version 0.20.1", 0, "", "libpng16.so.16: cannot open shared object file: No such file")
    assert not images.passed and not images.stops and "libpng" in images.fix
    numpy = ask(f"version 0.16.0{NUMPY_1}", 0)
    assert numpy.stops and "numpy<2" in numpy.fix


def test_the_import_is_tried_and_the_linker_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake packages in a process of their own; the error alone would mean another torch."""
    site = tmp_path / "site-packages"
    for name, text in (("torch", ""), ("torchvision", f"import torch\nraise RuntimeError({NMS[14:]!r})")):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(text)
        (site / name / "_C.so").write_text("no library")
    (site / "torchvision-1.dist-info").mkdir()
    (site / "torchvision-1.dist-info/METADATA").write_text("Name: torchvision\nVersion: 1\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(cuda_builds, "find_broken_library", lambda name: None)
    (check,) = extensions.list_checks(Machine({}, tmp_path, tmp_path, (str(site),)), 60)
    assert "a library is cut off" in check.detail and f"{site}/torchvision/_C.so" in check.detail
