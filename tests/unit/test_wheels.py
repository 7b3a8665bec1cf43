"""Reading torch's and torch_npu's versions from their files, and refusing a CUDA build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.vnpu import wheels


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that packages are found in. Importing a package from it fails."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("torch", "torch_npu"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def install(site: Path, name: str, version_file: str) -> None:
    (site / name).mkdir()
    (site / name / "__init__.py").write_text("raise RuntimeError('imported')")
    (site / name / "version.py").write_text(version_file)


CPU = "from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"
CUDA = "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n"


def test_cpu_build(site: Path) -> None:
    install(site, "torch", CPU)
    torch = wheels.find_wheel("torch")
    assert torch == wheels.Wheel("torch", "2.13.0+cpu", None)
    assert wheels.cuda_problem(torch) == ""
    assert wheels.main() == 0


def test_cuda_build_is_refused_with_reason_and_remedy(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "torch", CUDA)
    assert wheels.main() == 2
    error = capsys.readouterr().err
    for words in ("2.13.0+cu130", "CUDA 13.0", "torch_npu refuses", "TORCH_INDEX=", "TORCH_WHEEL="):
        assert words in error


@pytest.mark.parametrize("text", [None, "__version__ = (", "\0"])
def test_a_damaged_package_is_named(site: Path, capsys: pytest.CaptureFixture[str], text: str | None) -> None:
    install(site, "torch", text or "")
    if text is None:
        (site / "torch/version.py").unlink()
    with pytest.raises(TorchportError, match="torch is damaged"):
        wheels.find_wheel("torch")
    assert wheels.main() == 2
    assert "pip install --force-reinstall" in capsys.readouterr().err


def test_nothing_installed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wheels.find_wheel("torch_npu") is None
    assert wheels.main() == 2
    assert capsys.readouterr().err == "torch is not installed.\n"
