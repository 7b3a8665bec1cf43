"""The build backend: an editable install is one path, a wheel without torch is pure Python and complete."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools/backend"))
    monkeypatch.chdir(ROOT)  # as PEP 517 front ends call it
    return importlib.import_module("torchport_build")


def test_editable_wheel_is_one_path(backend: ModuleType, tmp_path: Path) -> None:
    wheel = zipfile.ZipFile(tmp_path / backend.build_editable(str(tmp_path)))
    code = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert code == ["__editable__.torchport.pth"]
    assert wheel.read(code[0]).decode() == f"{ROOT / 'src'}\n"
    (record,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/RECORD"))
    assert {line.partition(",")[0] for line in record.splitlines()} == set(wheel.namelist())
    assert [path.name for path in tmp_path.iterdir()] == [Path(str(wheel.filename)).name], "nothing else is left"


def built(path: Path) -> bool:
    """What CMake installs into the home of the virtual NPU, libraries and programs, and what Python keeps there."""
    return path.suffix == ".pyc" or path.read_bytes().startswith(b"\x7fELF")


def test_wheel_without_torch_is_pure_and_complete(
    backend: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "compiled", lambda: backend.Part.NOTHING)
    name = backend.build_wheel(str(tmp_path))
    assert name.endswith("-py3-none-any.whl")
    files = set(zipfile.ZipFile(tmp_path / name).namelist())
    assert not [file for file in files if file.endswith((".so", "/msprof"))]
    wanted = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/torchport").rglob("*")
        if path.suffix in {".py", ".toml"} or ("home" in path.parts and path.is_file() and not built(path))
    }
    assert wanted <= files


@pytest.mark.parametrize(
    ("there", "version", "compiler", "part"),
    [
        ({"torch", "torch_npu"}, "2.13.0+cpu", False, "ALL"),
        ({"torch"}, "2.13.0+cu130", True, "RECORDER"),
        ({"torch"}, "2.13.0+cu130", False, "NOTHING"),
        ({"torch"}, "2.13.1", True, "NOTHING"),
        ({"torch_npu"}, "", True, "NOTHING"),
        (set(), "", True, "NOTHING"),
    ],
)
def test_what_is_compiled(
    backend: ModuleType, there: set[str], version: str, compiler: bool, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: sys if name in there else None)
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    monkeypatch.setattr("shutil.which", lambda name: name if compiler else None)
    assert backend.compiled() is backend.Part[part]
