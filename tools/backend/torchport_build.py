"""The build backend: scikit-build-core, with the C++ part only where it can be built.

- A wheel built in an environment that holds torch and torch_npu (`pip install --no-build-isolation .`)
  carries the virtual NPU, compiled against exactly those two.
- In one that holds torch alone, in the release that we are made for, and a compiler (a machine with a GPU), it
  carries the library that notes operators.
- In any other environment, pip's isolated one included, it is a pure-Python wheel (py3-none-any): convert,
  analyze and report work, recording does through Python, the virtual NPU does not.
- An editable install runs no CMake and installs one .pth line that points to src/: files added later are
  seen without installing again. `make build` puts the libraries into src/torchport/vnpu/lib.

torch is looked for, never imported: importing it takes seconds and loads torch_npu, which needs a device.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import zipfile
from pathlib import Path

from scikit_build_core import build as scikit
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, list[str] | str]


class Part(enum.Enum):
    """What of the C++ part is built."""

    ALL = enum.auto()
    RECORDER = enum.auto()
    NOTHING = enum.auto()


def compiled() -> Part:
    """What can be, with the wheels that are installed in this environment."""
    torch, torch_npu = (importlib.util.find_spec(name) is not None for name in ("torch", "torch_npu"))
    if torch and torch_npu:
        return Part.ALL
    compiler = any(shutil.which(name) for name in (os.environ.get("CXX", ""), "c++", "g++") if name)
    if torch and compiler and importlib.metadata.version("torch").partition("+")[0] == _supported():
        return Part.RECORDER
    return Part.NOTHING


def _supported() -> str:
    """The release of torch, as vnpu/wheels.py has it; nothing of torchport is imported here."""
    (found,) = re.findall(r'^SUPPORTED = "([^"]+)"$', Path("src/torchport/vnpu/wheels.py").read_text(), re.M)
    return str(found)


def _wheel(settings: Settings | None) -> Settings:
    part = compiled()
    if part is Part.ALL:
        return dict(settings or {})
    if part is Part.RECORDER:
        print("torchport: torch without torch_npu here: building the recorder, not the virtual NPU")
        return dict(settings or {})
    print("torchport: no torch and torch_npu here: building a pure-Python wheel without the virtual NPU")
    return {**(settings or {}), "wheel.cmake": "false"}


def _editable(settings: Settings | None) -> Settings:
    return {**(settings or {}), "wheel.cmake": "false"}


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """cmake and ninja where they are needed and not found."""
    return scikit.get_requires_for_build_wheel(_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Settings | None = None) -> list[str]:
    """Nothing beyond scikit-build-core itself."""
    return scikit.get_requires_for_build_editable(_editable(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings | None = None) -> str:
    """Write the dist-info directory; return its name."""
    return scikit.prepare_metadata_for_build_wheel(metadata_directory, _wheel(config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings | None = None) -> str:
    """Write the dist-info directory; return its name."""
    return scikit.prepare_metadata_for_build_editable(metadata_directory, _editable(config_settings))


def build_wheel(
    wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel, with or without the virtual NPU; return its file name."""
    return scikit.build_wheel(wheel_directory, _wheel(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None
) -> str:
    """Write a wheel of metadata and one .pth line that makes src/ importable; return its file name.

    scikit-build-core's own editable modes (1.1) put an import hook in front of every Python start; a path is
    all that is needed here.
    """
    target = Path(wheel_directory)
    metadata = target / prepare_metadata_for_build_editable(wheel_directory, config_settings)
    files = {f"{metadata.name}/{name}": (metadata / name).read_bytes() for name in ("METADATA", "entry_points.txt")}
    files["__editable__.torchport.pth"] = f"{Path('src').resolve()}\n".encode()
    files[f"{metadata.name}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: torchport_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{metadata.name}/RECORD"] = f"{record}{metadata.name}/RECORD,,\n".encode()
    shutil.rmtree(metadata)
    wheel = target / f"{metadata.name.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel.name


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
