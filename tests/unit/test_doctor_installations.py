"""The doctor on folders that hide a package, and on packages that are half installed. All are made of small files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from torchport import cli, cuda_builds
from torchport.doctor import Machine, extensions, packages, search_path
from torchport.doctor.damage import find_damage
from torchport.doctor.search_path import find_package
from torchport.vnpu import backend

RELEASES = {"torch": "2.13.0+cpu", "torch_npu": "2.13.0", "torchvision": "0.28.0", "numpy": "2.4.6"}
LIBRARY = {name: f"{names[0]}{EXTENSION_SUFFIXES[0]}" for name, names in search_path.LIBRARIES.items()}


def install(site: Path, name: str, version: str, *requires: str) -> None:
    """Write the files of a wheel, and the metadata that lists them, as pip does."""
    for file, text in (
        ("__init__.py", "raise SystemExit('imported')"),
        ("version.py", f"__version__ = '{version}'"),
        (LIBRARY[name], "library"),
    ):
        (site / name / file).parent.mkdir(parents=True, exist_ok=True)
        (site / name / file).write_text(text)
    describe(site, name, version, *requires)


def describe(site: Path, name: str, version: str, *requires: str) -> Path:
    folder = site / f"{name}-{version.partition('+')[0]}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in requires)]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    files = ("__init__.py", "version.py", LIBRARY[name])
    (folder / "RECORD").write_text("".join(f"{name}/{file},sha256=x,7\n" for file in files))
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Site-packages with torch, torch_npu, torchvision and numpy of one release."""
    site = tmp_path / "site-packages"
    for name, version in RELEASES.items():
        install(site, name, version, *(["torch (==2.13.0)"] if name == "torchvision" else []))
    (tmp_path / "work").mkdir()
    return site


@pytest.fixture
def machine(site: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    monkeypatch.setattr(cuda_builds, "find_broken_library", lambda name: None)

    def make(**variables: str) -> Machine:
        return Machine(variables, site.parent, site.parent / "work", (str(site.parent / "work"), str(site)))

    return make


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(machine: Machine) -> dict[str, str]:
    checks = [*search_path.list_checks(machine), *extensions.list_checks(machine, None)]
    return {check.name: f"{check.detail} -> {check.fix}" for check in checks if not check.passed}


def damage(machine: Machine, name: str) -> str:
    told = find_damage(machine, name, f"pip install {name}")
    return f"{told.detail} -> {told.fix}" if told else ""


def test_packages_of_one_release_are_left_in_peace(machine: Callable[..., Machine]) -> None:
    assert found(machine()) == {}
    assert [damage(machine(), name) for name in RELEASES] == [""] * 4


@pytest.mark.parametrize("file", ["torch/__init__.py", "torch_npu/__init__.py", "torch.py", "torch_npu.py"])
@pytest.mark.parametrize("file_of_other", ["torchvision/__init__.py", "numpy.py"])
def test_a_folder_that_hides_a_package_in_the_working_folder(
    file: str, file_of_other: str, machine: Callable[..., Machine], site: Path
) -> None:
    for each in (file, file_of_other):
        write(site.parent / "work" / each)
        (said,) = found(machine()).values()
        assert "found first" in said and f"the installed one is in {site}" in said
        assert "Start Python from another folder, or rename" in said and "pip install" not in said
        assert found(machine(PYTHONSAFEPATH="1")) == {}
        assert damage(machine(), Path(each).parts[0].removesuffix(".py")) == "", "the wheel is whole"
        (site.parent / "work" / each).unlink()


@pytest.mark.parametrize("variable", ["{source}", "/none:{source}", "source"])
def test_a_folder_that_hides_a_package_in_pythonpath(
    variable: str, machine: Callable[..., Machine], site: Path
) -> None:
    source = site.parent / "work/source"
    write(source / "torch_npu/__init__.py")
    write(source / "torch_npu.egg-info/PKG-INFO", "Name: torch_npu\nVersion: 2.1.0\n")  # setup.py leaves it
    said = found(machine(PYTHONPATH=variable.format(source=source), PYTHONSAFEPATH="1"))
    assert said["import path"].endswith(f"Take {source} out of PYTHONPATH, or rename {source}/torch_npu.")


def test_an_empty_entry_of_pythonpath_is_the_working_folder(machine: Callable[..., Machine], site: Path) -> None:
    write(site.parent / "work/torch.py")
    assert "import path" in found(machine(PYTHONPATH=":/none", PYTHONSAFEPATH="1"))
    assert found(machine(PYTHONPATH="", PYTHONSAFEPATH="1")) == {}


@pytest.mark.parametrize(
    "files",
    [
        ["torch_utils/__init__.py", "tests/torch/__init__.py", "src/torch_npu.py"],
        ["torch/nn/__init__.py"],  # without an __init__.py of its own, it hides nothing
        ["torchaudio/__init__.py", "apex/__init__.py"],  # a project's own copies, and none is installed
        [f"torch_npu/{file}" for file in ("__init__.py", LIBRARY["torch_npu"])],  # setup.py develop
    ],
)
def test_folders_that_hide_nothing(files: list[str], machine: Callable[..., Machine], site: Path) -> None:
    for file in files:
        write(site.parent / "work" / file)
    assert found(machine()) == {}
    assert found(machine(PYTHONPATH=str(site.parent / "work"))) == {}
    assert damage(machine(), "torch_npu") == ""


def test_apex_of_a_project_hides_an_installed_one(machine: Callable[..., Machine], site: Path) -> None:
    write(site / "apex/__init__.py")
    write(site.parent / "work/apex/__init__.py")
    assert "another package of this name" in found(machine())["import path"]


def test_packages_that_pip_installed_into_a_folder_of_pythonpath(machine: Callable[..., Machine], site: Path) -> None:
    target = site.parent / "target"
    install(target, "torch_npu", "2.9.0")
    assert found(machine(PYTHONPATH=str(target))) == {}
    assert find_package(machine(PYTHONPATH=str(target)), "torch_npu").origin == target / "torch_npu/__init__.py"


def test_site_packages_as_the_working_folder(site: Path) -> None:
    assert found(Machine({}, site.parent, site, (str(site),))) == {}


def test_a_package_of_another_python_in_pythonpath(machine: Callable[..., Machine], site: Path) -> None:
    other = site.parent / "python3.10/site-packages"
    install(other, "numpy", "1.26.4")
    (other / "numpy" / LIBRARY["numpy"]).rename(other / "numpy/_core/_multiarray_umath.cpython-310-x86_64-linux-gnu.so")
    said = found(machine(PYTHONPATH=str(other)))["import path"]
    assert "another Python (cpython-310)" in said and f"Take {other} out of PYTHONPATH" in said


def test_metadata_without_files(machine: Callable[..., Machine], site: Path) -> None:
    shutil.rmtree(site / "torch_npu")
    said = damage(machine(), "torch_npu")
    assert "metadata of torch_npu 2.13.0 and not its files" in said
    assert said.endswith("-> pip uninstall -y torch_npu && pip install torch_npu")
    (site / "torch_npu-2.13.0.dist-info/RECORD").unlink()
    (site / "torch_npu/lib").mkdir(parents=True)
    steps = f"rm -rf {site}/torch_npu-*.dist-info && rm -rf {site}/torch_npu && pip install torch_npu"
    assert damage(machine(), "torch_npu").endswith(steps)


def test_an_editable_installation_of_a_folder_that_is_gone(machine: Callable[..., Machine], site: Path) -> None:
    shutil.rmtree(site / "torch_npu")
    told = {"url": "file:///gone", "dir_info": {"editable": True}}
    write(site / "torch_npu-2.13.0.dist-info/direct_url.json", json.dumps(told))
    assert "editable installation of /gone" in damage(machine(), "torch_npu")


def test_files_without_metadata(machine: Callable[..., Machine], site: Path) -> None:
    shutil.rmtree(site / "torch_npu-2.13.0.dist-info")
    said = damage(machine(), "torch_npu")
    assert "no metadata" in said and said.endswith(f"rm -rf {site}/torch_npu && pip install torch_npu")


@pytest.mark.parametrize("empty", [True, False])
def test_files_of_a_wheel_that_are_missing(empty: bool, machine: Callable[..., Machine], site: Path) -> None:
    library = site / "torch_npu" / LIBRARY["torch_npu"]
    library.unlink()
    if empty:
        library.touch()
    said = damage(machine(), "torch_npu")
    assert ("RECORD" in said) == empty and "_C" in said
    assert said.endswith(f"pip uninstall -y torch_npu && rm -rf {site}/torch_npu && pip install torch_npu")


def test_two_versions_in_one_folder(machine: Callable[..., Machine], site: Path) -> None:
    describe(site, "torch_npu", "2.1.0")
    said = damage(machine(), "torch_npu")
    assert "2.1.0 and 2.13.0" in said
    assert said.count("pip uninstall -y torch_npu") == 2


def test_files_of_another_version_than_the_metadata(machine: Callable[..., Machine], site: Path) -> None:
    write(site / "torch_npu/version.py", "__version__ = '2.9.0.post1+git1'")
    assert "files are of 2.9.0.post1+git1, its metadata of 2.13.0" in damage(machine(), "torch_npu")
    write(site / "torch_npu/version.py", "__version__ = '2.13.0.post1+git1'")
    assert damage(machine(), "torch_npu") == ""


def test_editable_installations(machine: Callable[..., Machine], site: Path) -> None:
    shutil.rmtree(site / "torch_npu")
    checkout = site.parent / "checkout"
    write(checkout / "torch_npu/__init__.py")
    there = Machine({}, site.parent, site.parent / "work", (str(site), str(checkout)))  # a .pth file says so
    said = damage(there, "torch_npu")
    assert "source that is not built" in said and "pip uninstall" not in said
    write(checkout / "torch_npu" / LIBRARY["torch_npu"], "library")
    assert damage(there, "torch_npu") == ""
    assert found(there) == {}


@pytest.mark.parametrize(
    ("requires", "torch", "version", "says"),
    [
        ("torch==2.12.0", "2.13.0+cpu", "0.27.0", "built for torch 2.12.0"),
        ("torch (==2.1.2)", "2.13.0", "0.16.2", "built for torch 2.1.2"),
        ("torch==2.13.0.*", "2.13.0+cpu", "0.28.0+cpu", ""),
        ("torch>=2.0", "2.13.0", "0.28.0", ""),
        ("torch==9.9; extra == 'x'", "2.13.0", "0.28.0", ""),
        ("torch==2.13.0+cpu", "2.13.0+cpu", "0.28.0+cpu", ""),
        ("pillow>=5", "2.13.0", "0.28.0", "imports pillow"),
    ],
)
def test_torchvision_by_its_metadata(
    requires: str, torch: str, version: str, says: str, machine: Callable[..., Machine], site: Path
) -> None:
    for name in ("torch", "torchvision"):
        for path in (*site.glob(f"{name}-*"), site / name):
            shutil.rmtree(path)
    install(site, "torch", torch)
    install(site, "torchvision", version, requires)
    said = found(machine())
    assert set(said) == ({"torchvision"} if says else set())
    assert says in said.get("torchvision", "")


def test_torchvision_for_another_cuda_than_torch(machine: Callable[..., Machine], site: Path) -> None:
    write(site / "torchvision/version.py", "__version__ = '0.28.0+cu121'")
    assert found(machine()) == {}
    write(site / "torch/version.py", "__version__ = '2.13.0+cu130'\ncuda = '13.0'")
    assert "for CUDA 12, and torch 2.13.0+cu130 for CUDA 13.0" in found(machine())["torchvision"]


def test_torchvision_for_cuda_that_is_not_mended(
    machine: Callable[..., Machine], site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_builds, "find_broken_library", lambda name: site / "torchvision/_C.so")
    monkeypatch.setattr(cuda_builds, "pth_file", lambda: site / "mended.pth")
    assert "torchport doctor --fix" in found(machine())["torchvision"]
    write(site / "mended.pth")
    assert found(machine()) == {}


def test_numpy_2_beside_a_torch_for_numpy_1(machine: Callable[..., Machine], site: Path) -> None:
    assert packages._newer_numpy(machine()) is None
    for path in (*site.glob("torch-*"), site / "torch"):
        shutil.rmtree(path)
    install(site, "torch", "2.1.0")
    write(site.parent / "work/torch.py")  # makes it read the installed one
    told = packages._newer_numpy(machine())
    assert told is not None and told.fix == "pip install 'numpy<2'"


def test_the_command_in_a_folder_with_torch_npu(site: Path, tmp_path: Path) -> None:
    """As `python -m torchport doctor` and the script `torchport` see it: with the working folder, and without."""
    write(tmp_path / "work/torch_npu/__init__.py", "raise SystemExit('imported')")
    source = Path(cli.__file__).parents[2]
    variables = {"PATH": os.environ["PATH"], "VNPU_LIBRARIES": str(backend.HOME)}
    for extra in ([], [str(tmp_path / "work")]):
        program = (
            f"import sys; sys.path[:0] = {[*extra, str(source), str(site)]!r}; from torchport.cli import main; "
            "sys.exit(main(['doctor', '--no-probe', '--json']))"
        )
        ended = subprocess.run(
            [sys.executable, "-S", "-B", "-c", program],
            env=variables,
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            check=False,
        )
        checks = {check["name"]: check for check in json.loads(ended.stdout)["checks"]}
        assert ended.returncode == 1 and "another folder" in checks["import path"]["fix"]
        assert checks["torch_npu"]["passed"], "the wheel is right, and nothing is to be installed again"
