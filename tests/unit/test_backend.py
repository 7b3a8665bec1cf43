"""Which backend a machine gets: decided from files and variables, so each case is a small tree of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.vnpu import Kind, backend, detect, environment


class Machine:
    """A machine made of files: nothing is installed until a method says so."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.patch = patch
        patch.setenv("VNPU_LIBRARIES", str(root / "lib"))
        patch.setattr(backend, "CANN_ROOTS", (str(root / "usr/local/Ascend/cann"),))
        patch.setattr(backend, "DEVICE_NODES", str(root / "dev/davinci[0-9]*"))
        patch.setattr(backend, "LINKER_CACHE", root / "ld.so.cache")

    def build_vnpu(self) -> Path:
        return self.touch("lib/libascendcl.so").parent

    def install_cann(self, home: str = "usr/local/Ascend/cann") -> Path:
        return self.touch(f"{home}/lib64/libascendcl.so").parent.parent

    def plug_npu(self) -> None:
        self.touch("dev/davinci0")

    def touch(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_bare_machine_has_none_and_says_both_reasons(machine: Machine) -> None:
    found = detect({})
    assert found.kind is Kind.NONE
    assert "CANN is not on this machine" in found.reason
    assert "not built" in found.reason


def test_virtual_npu_where_it_is_built(machine: Machine) -> None:
    lib = machine.build_vnpu()
    found = detect({})
    assert (found.kind, found.libraries, found.home) == (Kind.VNPU, lib, backend.HOME)


@pytest.mark.parametrize("sourced", [True, False])
def test_cann_with_an_npu_wins(machine: Machine, sourced: bool) -> None:
    machine.build_vnpu()
    machine.plug_npu()
    home = machine.install_cann()
    found = detect({"ASCEND_HOME_PATH": str(home)} if sourced else {})
    assert (found.kind, found.libraries, found.home) == (Kind.CANN, home / "lib64", home)


def test_cann_without_npu_leaves_the_virtual_one_and_says_so(machine: Machine) -> None:
    machine.build_vnpu()
    home = machine.install_cann()
    found = detect({"ASCEND_HOME_PATH": str(home)})
    assert found.kind is Kind.VNPU
    assert "no NPU on this machine" in found.reason


def test_cann_on_the_library_path_or_in_the_linker_cache(machine: Machine) -> None:
    machine.plug_npu()
    home = machine.install_cann("elsewhere")
    assert detect({"LD_LIBRARY_PATH": f"/nowhere:{home / 'lib64'}"}).kind is Kind.CANN
    (machine.root / "ld.so.cache").write_bytes(b"\0libascendcl.so\0")
    assert detect({}).kind is Kind.CANN


def test_environment_of_the_virtual_npu_is_not_taken_for_cann(machine: Machine) -> None:
    lib = machine.build_vnpu()
    machine.plug_npu()
    machine.touch("other/libascendcl.so")
    machine.touch("other/libvnpu.so")
    path = f"{machine.root / 'other'}:{lib}"
    found = detect({"ASCEND_HOME_PATH": str(backend.HOME), "LD_LIBRARY_PATH": path, "TORCHPORT_BACKEND": ""})
    assert found.kind is Kind.VNPU
    machine.patch.chdir(lib.parent)
    machine.patch.setenv("VNPU_LIBRARIES", lib.name)
    assert detect({"LD_LIBRARY_PATH": str(lib)}).kind is Kind.VNPU


def test_force(machine: Machine) -> None:
    machine.build_vnpu()
    machine.plug_npu()
    machine.install_cann()
    assert detect({"TORCHPORT_BACKEND": "vnpu"}).kind is Kind.VNPU
    assert detect({"TORCHPORT_BACKEND": "cann"}).kind is Kind.CANN
    assert detect({"TORCHPORT_BACKEND": "auto"}).kind is Kind.CANN


@pytest.mark.parametrize(("value", "says"), [("vnpu", "not built"), ("cann", "not on"), ("gpu", "not a")])
def test_force_what_is_not_there(machine: Machine, value: str, says: str) -> None:
    with pytest.raises(TorchportError, match=says) as error:
        detect({"TORCHPORT_BACKEND": value})
    assert {"vnpu": "make build", "cann": "Install CANN", "gpu": "vnpu, cann or auto"}[value] in error.value.hint


def test_child_environment_is_complete_and_stable(machine: Machine) -> None:
    lib = machine.build_vnpu()
    first = environment({"LD_LIBRARY_PATH": "/opt/a"})
    assert first["LD_LIBRARY_PATH"] == f"{lib}:/opt/a"
    assert first["TORCHPORT_BACKEND"] == "vnpu"
    for folder in ("runtime", "compiler", "opp", "lib64"):
        assert (Path(first["ASCEND_HOME_PATH"]) / folder).is_dir(), f"torch_npu looks for {folder}"
    assert Path(first["ASCEND_OPP_PATH"]).is_dir()
    assert environment(first) == first, "activating twice changes nothing"


def test_environment_without_backend_says_how_to_get_one(machine: Machine) -> None:
    with pytest.raises(TorchportError) as error:
        environment({})
    assert "make build" in error.value.hint


@pytest.mark.parametrize("place", [".", ".."])
def test_cann_that_is_not_sourced_is_sourced_for_children(machine: Machine, place: str) -> None:
    machine.plug_npu()
    home = machine.install_cann()
    (home / place / "set_env.sh").write_text(f"export ASCEND_HOME_PATH={home}\nexport ASCEND_OPP_PATH={home}/opp\n")
    assert environment({"PATH": "/usr/bin:/bin"}) == {"ASCEND_HOME_PATH": str(home), "ASCEND_OPP_PATH": f"{home}/opp"}
    sourced = {"ASCEND_HOME_PATH": str(home), "LD_LIBRARY_PATH": f"/opt/a:{home / 'lib64'}"}
    assert environment(sourced) == {}, "already sourced: nothing to add"
    (machine.root / "latest").symlink_to(home)
    sourced["ASCEND_HOME_PATH"] = str(machine.root / "latest")
    assert environment(sourced) == {}, "by whatever name of the folder"


def test_a_home_without_its_libraries_in_the_path_is_not_sourced(machine: Machine) -> None:
    machine.plug_npu()
    home = machine.install_cann()
    (home / "set_env.sh").write_text(f"export LD_LIBRARY_PATH={home}/lib64:$LD_LIBRARY_PATH\n")
    found = environment({"ASCEND_HOME_PATH": str(home), "LD_LIBRARY_PATH": "/opt/a", "PATH": "/usr/bin:/bin"})
    assert found == {"LD_LIBRARY_PATH": f"{home}/lib64:/opt/a"}


def test_broken_set_env_is_reported(machine: Machine) -> None:
    machine.plug_npu()
    (machine.install_cann() / "set_env.sh").write_text("echo 'driver not found' >&2; exit 3\n")
    with pytest.raises(TorchportError, match="driver not found"):
        environment({"PATH": "/usr/bin:/bin"})
