"""torchport.vnpu.mindspore: what it says of packages, the folders that it makes, the variables. Without MindSpore."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.doctor import mindspore as doctor
from torchport.doctor.check import Machine
from torchport.errors import TorchportError
from torchport.vnpu.mindspore import activation, home, wheels

ROOT = Path(__file__).parents[2]
RIGHT = {"mindspore": "2.10.0", "numpy": "1.26.4", "torch": f"{wheels.SUPPORTED}+cpu"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    versions = dict(RIGHT)

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    return versions


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    libraries = tmp_path / "a folder" / "lib"
    (libraries / "mindspore").mkdir(parents=True)
    for name in ("libascendcl.so", "libvnpu.so", "libgraph.so", "libascend_hal.so"):
        (libraries / name).write_text(f"torch_npu's {name}")
    (libraries / "mindspore" / "libgraph.so").write_text("MindSpore's")
    monkeypatch.setenv("VNPU_LIBRARIES", str(libraries))
    return libraries


def test_the_right_packages_have_no_problem(installed: dict[str, str]) -> None:
    assert wheels.find_problems() == []


@pytest.mark.parametrize(
    ("package", "version", "words"),
    [
        ("mindspore", "2.9.0", "MindSpore 2.9.0 is installed"),
        ("mindspore", "2.11.0", "what MindSpore 2.10 asks CANN for"),
        ("mindspore", "", "MindSpore is not installed"),
        ("numpy", "2.4.6", "built for numpy 1"),
        ("torch", "2.12.0", "compiled against torch 2.13.0"),
        ("torch", "", "torch is not installed"),
    ],
)
def test_each_wrong_package_has_a_sentence_and_a_command(
    installed: dict[str, str], package: str, version: str, words: str
) -> None:
    del installed[package]
    if version:
        installed[package] = version
    (problem,) = wheels.find_problems()
    assert problem.package == package and words in problem.sentence and "mindspore==2.10.0" in problem.command
    with pytest.raises(TorchportError, match=words.split()[0]):
        activation.environment({})
    assert any(words in check.detail for check in doctor.list_checks(Machine({}))) or (
        package == "mindspore" and not version
    )


def test_mindspores_libraries_go_before_torch_npus_in_its_folder_alone(built: Path) -> None:
    folder = home.complete_lib64()
    assert folder == built / "cann" / "lib64"
    assert (folder / "libgraph.so").read_text() == "MindSpore's"
    assert (folder / "libvnpu.so").read_text() == "torch_npu's libvnpu.so"
    assert (folder / "driver" / "libascend_hal.so").read_text() == "torch_npu's libascend_hal.so"
    assert (built / "libgraph.so").read_text() == "torch_npu's libgraph.so"
    assert all(path.is_symlink() for path in folder.glob("*.so"))
    (built / "libvnpu.so").unlink()
    assert not (home.complete_lib64() / "libvnpu.so").is_symlink()  # a build without it leaves no broken link


def test_a_build_without_them_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VNPU_LIBRARIES", str(tmp_path))
    with pytest.raises(TorchportError, match="before it had MindSpore's libraries"):
        home.complete_lib64()


def test_the_variables(installed: dict[str, str], built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.machinery.ModuleSpec("torch", None, origin="/site/torch/__init__.py")
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: spec)
    given = activation.environment({"LD_LIBRARY_PATH": "/mine:/site/torch/lib", "PYTHONPATH": "/code"})
    assert given["LD_LIBRARY_PATH"] == f"{built}/cann/lib64:/site/torch/lib:/mine"
    assert given["PYTHONPATH"] == f"{home.PYTHON}:/code"
    assert given["ASCEND_HOME_PATH"] == str(home.HOME) and given["TORCHPORT_BACKEND"] == "vnpu"
    assert (home.HOME / "compiler" / "version.info").read_text().startswith("Version=")
    with pytest.raises(TorchportError, match="TORCHPORT_BACKEND=cann"):
        activation.environment({"TORCHPORT_BACKEND": "cann"})


def test_stand_ins_let_kernels_be_described_and_have_versions_of_the_cann() -> None:
    program = """
import te.lang.cce, sys
from te import tik, tvm
from te.platform.fusion_manager import fusion_manager
from tbe.tvm.topi.cce import util
from te import version
from hccl import sys_version

@fusion_manager.register("kernel")
def kernel(x):
    return x

print(kernel(3), version.version, sys_version.__sys_version__)
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(home.PYTHON)},
        capture_output=True,
        text=True,
        check=False,
    )
    stated = (home.HOME / "compiler" / "version.info").read_text().strip().removeprefix("Version=")
    assert result.stdout.split() == ["3", stated, stated], result.stderr


def test_a_program_for_torch_npu_does_not_load_it() -> None:
    program = "import sys, torchport.vnpu; print('torchport.vnpu.mindspore' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )
    assert "mindspore" not in vnpu.__all__


def test_the_doctor_names_what_a_shell_lacks(installed: dict[str, str], built: Path) -> None:
    by_name = {check.name: check for check in doctor.list_checks(Machine({}))}
    assert by_name["mindspore"].passed and by_name["mindspore: libraries"].passed
    assert by_name["mindspore: shell"].advice and "--mindspore" in by_name["mindspore: shell"].fix
    half = {check.name: check for check in doctor.list_checks(Machine({"ASCEND_HOME_PATH": str(home.HOME)}))}
    assert half["mindspore: PYTHONPATH"].stops and "te and hccl" in half["mindspore: PYTHONPATH"].detail
    assert half["mindspore: LD_LIBRARY_PATH"].stops


def test_the_list_of_names_has_a_library_for_each() -> None:
    needed = tomllib.loads((ROOT / "csrc/mindspore/needed.toml").read_text(encoding="utf-8"))
    assert {"ge_runner", "graph", "ascendcl", "hccl", "opapi"} <= set(needed)
    assert len(needed["opapi"]["operators"]) > 400
    requirements = (ROOT / "tests/mindspore/requirements.txt").read_text(encoding="utf-8")
    assert f"mindspore=={wheels.RELEASE}." in requirements
