"""The doctor on machines that lack something: each misconfiguration is named with the command that mends it, and a
machine without it is left in peace."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from torchport import cli, vnpu
from torchport.doctor import (
    Machine,
    build,
    bundle,
    cann,
    devices,
    distributed,
    environment,
    host,
    libraries,
    packages,
    search_path,
)
from torchport.doctor.check import Check
from torchport.errors import TorchportError
from torchport.vnpu import wheels


class Fake(Machine):
    """A machine below a folder, with the backend that a test says."""

    def __init__(self, root: Path, kind: vnpu.Kind, **environ: str) -> None:
        object.__setattr__(self, "environ", environ)
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "working_folder", root / "work")
        object.__setattr__(self, "path", ())
        self.__dict__["backend"] = vnpu.Backend(kind, "as the test says", root / "lib", root / "home")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fake]:
    """A healthy machine with an NPU, or with the virtual one; variables are the test's."""
    for name in ("lib", "dev", "cann/runtime", "cann/compiler", "opp"):
        (tmp_path / name).mkdir(parents=True)
    for name in (*libraries.NAMES, libraries.HAL):
        (tmp_path / "lib" / name).touch()
    write(tmp_path, "cann/version.cfg", "version=9.1.0")
    write(tmp_path, cann.DRIVER, "Version=26.0.0\ncompatible_version_fw=[7.0.0,7.9.9]\n")
    write(tmp_path, cann.FIRMWARE, "Version=7.5.0.1\n")
    for name in ("davinci0", "davinci1", *(Path(node).name for node in devices.NODES)):
        (tmp_path / "dev" / name).touch()
    monkeypatch.setattr(wheels, "find_wheel", lambda name: wheels.Wheel(name, wheels.SUPPORTED))
    monkeypatch.setattr(packages, "is_package_installed", lambda name: True)
    monkeypatch.setattr(host, "shared_memory", lambda machine: 8 << 30)
    monkeypatch.setattr(distributed, "is_port_taken", lambda port: False)

    def make(kind: vnpu.Kind = vnpu.Kind.CANN, **variables: str) -> Fake:
        right = {"ASCEND_HOME_PATH": str(tmp_path / "cann"), "ASCEND_OPP_PATH": "/opp", "LD_LIBRARY_PATH": "/lib"}
        return Fake(tmp_path, kind, **({**right, **variables} if kind is vnpu.Kind.CANN else variables))

    return make


def write(root: Path, name: str, text: str) -> None:
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(machine: Machine) -> list[Check]:
    """All checks but those that look at this machine itself."""
    subjects = (host, packages, devices, cann, libraries, environment, distributed)
    return [check for subject in subjects for check in subject.list_checks(machine)]


def failed(machine: Machine) -> dict[str, Check]:
    return {check.name: check for check in found(machine) if not check.passed}


@pytest.mark.parametrize("kind", [vnpu.Kind.CANN, vnpu.Kind.VNPU])
def test_a_healthy_machine_is_left_in_peace(kind: vnpu.Kind, made: Callable[..., Fake]) -> None:
    assert failed(made(kind)) == {}


# Misconfigurations: variables, files, the check that names it, a word of its detail, a word of its command.
SEEDED: dict[str, tuple[dict[str, str], dict[str, str], str, str, str]] = {
    "half an environment": ({"ASCEND_OPP_PATH": ""}, {}, "ASCEND_OPP_PATH", "not set", "set_env.sh"),
    "a home without a toolkit": ({"ASCEND_HOME_PATH": "/"}, {}, "cann", "lacks runtime", "set_env.sh"),
    "devices in the wrong order": ({"ASCEND_RT_VISIBLE_DEVICES": "3,1"}, {}, "visible devices", "ascend", "=1,3"),
    "two CANNs": (
        {"LD_LIBRARY_PATH": "/lib:/old/lib64"},
        {"old/lib64/libascendcl.so": ""},
        "one cann",
        "mixes",
        "shell",
    ),
    "an old driver": ({}, {cann.DRIVER: "Version=24.1.rc1\n"}, "driver", "24.1.rc1", "npu-driver"),
    "firmware of another driver": (
        {},
        {cann.FIRMWARE: "Version=8.1.0\n"},
        "firmware",
        "7.0.0 to 7.9.9",
        "npu-firmware",
    ),
    "an old CANN": ({}, {"cann/version.cfg": "version=8.0.RC1"}, "compatibility", "goes with CANN 9.1.0", "CANN"),
    "a time-out in words": ({"HCCL_CONNECT_TIMEOUT": "20min"}, {}, "HCCL_CONNECT_TIMEOUT", "20min", "unset"),
    "an allocator told two things": (
        {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64"},
        {},
        "PYTORCH_NPU_ALLOC_CONF",
        "does not go with",
        "export",
    ),
    "CUDA's variable": ({"PYTORCH_CUDA_ALLOC_CONF": "x:1"}, {}, "PYTORCH_NPU_ALLOC_CONF", "another variable", "unset"),
    "NCCL's variable": (
        {"NCCL_SOCKET_IFNAME": "eth1"},
        {},
        "HCCL_SOCKET_IFNAME",
        "another variable",
        'HCCL_SOCKET_IFNAME="eth1"',
    ),
    "NCCL's bytes": ({"NCCL_BUFFSIZE": "8388608"}, {}, "HCCL_BUFFSIZE", "megabytes", 'HCCL_BUFFSIZE="8"'),
    "CUDA's devices": ({"CUDA_VISIBLE_DEVICES": "3,1"}, {}, "ASCEND_RT_VISIBLE_DEVICES", "ascend", 'DEVICES="1,3"'),
    "a dump that was left on": ({"ACL_DUMP_DATA": "1"}, {}, "ACL_DUMP_DATA", "writes", "unset"),
    "kernels of a CANN that is gone": ({"ASCEND_AICPU_PATH": "/gone"}, {}, "ASCEND_AICPU_PATH", "no folder", "unset"),
    "a misspelt variable": ({"VNPU_DEVICE": "2"}, {}, "VNPU_DEVICE", "nothing reads", "VNPU_DEVICES=2"),
    "left from debugging": ({"ASCEND_LAUNCH_BLOCKING": "1"}, {}, "ASCEND_LAUNCH_BLOCKING", "wait", "unset"),
    "a rank without a master": ({"RANK": "0", "WORLD_SIZE": "2"}, {}, "ranks", "MASTER_ADDR", "torchrun"),
    "ranks from 1": (
        {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
        {},
        "ranks",
        "from 0",
        "torchrun",
    ),
    "a master that is unknown": ({"MASTER_ADDR": "no such host"}, {}, "master address", "not known", "127.0.0.1"),
    "a rank table of nobody": (
        {"RANK_TABLE_FILE": "/table"},
        {"table": '{"server_list": [{}]}'},
        "rank table",
        "without devices",
        "unset",
    ),
    "a rank table that is missing": ({"RANK_TABLE_FILE": "/none"}, {}, "rank table", "cannot be read", "unset"),
}


def test_what_hccl_is_told_too_is_left_in_peace(made: Callable[..., Fake]) -> None:
    both = {"NCCL_SOCKET_IFNAME": "eth1", "HCCL_SOCKET_IFNAME": "eth1", "NCCL_DEBUG": "INFO", "CUDA_HOME": "/cuda"}
    assert failed(made(**both)) == {}


@pytest.mark.skipif("TORCHPORT_GUIDE" not in os.environ, reason="TORCHPORT_GUIDE, the guide's folder, is not set")
def test_the_guide_s_variables_are_looked_at() -> None:
    texts = "".join(path.read_text("utf-8") for path in Path(os.environ["TORCHPORT_GUIDE"]).glob("*.txt"))
    named = set(re.findall(r"export ([A-Z_]+)=", texts))
    assert len(named) > 10
    # Where libraries are looked for is `libraries`; a list of operators, and what ATC's own guide is about.
    elsewhere = {"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "DYNAMIC_OP", "ENABLE_BACKWARD"}
    assert named - set(environment._NUMBERS) - set(environment._FOLDERS) - elsewhere == set()


@pytest.mark.parametrize("name", SEEDED)
def test_a_misconfiguration_is_named(name: str, made: Callable[..., Fake], tmp_path: Path) -> None:
    variables, files, check, detail, fix = SEEDED[name]
    for path, text in files.items():
        write(tmp_path, path, text)
    wrong = failed(made(**variables))
    assert list(wrong) == [check], "this one alone"
    assert detail in wrong[check].detail
    assert fix in wrong[check].fix


def test_what_hardware_needs_beside_its_node(made: Callable[..., Fake], tmp_path: Path) -> None:
    (tmp_path / "dev/devmm_svm").unlink()
    assert "--device=/dev/devmm_svm" in failed(made())["device nodes"].fix
    (tmp_path / "lib/libascend_hal.so").unlink()
    assert "driver/lib64" in failed(made())["driver library"].fix


def test_little_shared_memory(made: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "shared_memory", lambda machine: 64 << 20)
    check = failed(made())["shared memory"]
    assert "--shm-size" in check.fix
    assert not check.stops, "scripts without workers run"


def test_advice_does_not_make_a_machine_unhealthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Check("good", True, "there"), Check("slow", False, "slow", "make it fast", advice=True)]
    monkeypatch.setattr("torchport.cli.doctor.examine_machine", lambda *_, **__: iter(rows))
    assert cli.main(["doctor"]) == 0
    assert "note  slow" in capsys.readouterr().out
    rows.append(Check("bad", False, "not there", "get it"))
    assert cli.main(["doctor"]) == 1
    assert "FAIL  bad" in capsys.readouterr().out


def test_a_port_that_is_taken(made: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert distributed.is_port_taken(port)
        (check,) = distributed.list_checks(Machine({"MASTER_PORT": str(port)}))
        assert (check.name, check.passed) == ("port", False)
        assert "MASTER_PORT=" in check.fix
    assert not distributed.is_port_taken(port)


def test_a_torch_of_another_release(made: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.9.0+cpu", "torch_npu": "2.13.0.post1"}
    monkeypatch.setattr(wheels, "find_wheel", lambda name: wheels.Wheel(name, versions[name]))
    wrong = failed(made())["torch_npu"]
    assert "torch is 2.9.0" in wrong.detail
    assert wrong.fix == "pip install torch==2.13.0"


def test_a_source_of_torch_in_the_path(made: Callable[..., Fake], tmp_path: Path) -> None:
    write(tmp_path, "source/torch/__init__.py", "raise SystemExit('imported')")
    wrong = failed(made(PYTHONPATH=str(tmp_path / "source")))["import path"]
    assert wrong.fix == f"Take {tmp_path}/source out of PYTHONPATH, or rename {tmp_path}/source/torch."


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        ((), {"torch", "torch_npu", "device"}),
        (("torch",), {"torch_npu", "device"}),
        (("torch", "torch_npu"), {"device"}),
    ],
)
def test_containers(there: tuple[str, ...], wrong: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, torch alone, torch_npu without CANN; the fourth kind is the healthy one above."""
    monkeypatch.setattr(
        wheels, "find_wheel", lambda name: wheels.Wheel(name, wheels.SUPPORTED) if name in there else None
    )
    monkeypatch.setattr(packages, "is_package_installed", lambda name: name in there or "torch_npu" in there)
    monkeypatch.setattr(host, "shared_memory", lambda machine: None)
    found_wrong = failed(Fake(tmp_path, vnpu.Kind.NONE))
    assert set(found_wrong) == wrong
    assert all(check.fix for check in found_wrong.values())


BARE = "import sys; sys.path[:0] = {path!r}; from torchport.cli import main; sys.exit(main(['doctor', '--no-probe', '--json']))"
KINDS = {
    "nothing": ((), False, {"torch", "torch_npu", "device"}),
    "torch alone": (("torch",), False, {"torch_npu", "device"}),
    "torch_npu without CANN": (("torch", "torch_npu", "numpy", "yaml"), False, {"device"}),
    "the virtual NPU": (("torch", "torch_npu", "numpy", "yaml"), True, set()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_containers_by_their_own_python(kind: str, tmp_path: Path) -> None:
    """The same of a Python without this environment's packages; what is installed ends the process when imported."""
    there, built, wrong = KINDS[kind]
    for name in there:
        write(tmp_path, f"{name}/__init__.py", "raise SystemExit('imported')")
        write(tmp_path, f"{name}/version.py", f"__version__ = {wheels.SUPPORTED!r}\ncuda = None\n")
        for library in search_path.LIBRARIES.get(name, ()):
            write(tmp_path, f"{name}/{library}.so", "")
    for name in libraries.NAMES if built else ():
        write(tmp_path, f"lib/{name}", "")
    before = {path for path in tmp_path.rglob("*") if path.name != "__pycache__"}
    path = [str(Path(cli.__file__).parents[2]), str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-S", "-B", "-c", BARE.format(path=path)],
        env={"PATH": os.environ["PATH"], "VNPU_LIBRARIES": str(tmp_path / "lib")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    checks = {check["name"]: check for check in json.loads(ended.stdout)["checks"]}
    # What this machine itself has (a port that is taken, little shared memory) is nobody's fault here.
    subjects = {"torch", "torch_npu", "numpy", "yaml", "hdf5", "device", "libraries", "environment"}
    assert {name for name in subjects & set(checks) if not checks[name]["passed"]} == wrong
    assert all(checks[name]["fix"] for name in wrong)
    assert ended.returncode == bool(wrong) and not ended.stderr
    assert {path for path in tmp_path.rglob("*") if path.name != "__pycache__"} == before


def test_a_backend_that_cannot_be_had(tmp_path: Path) -> None:
    machine = Fake(tmp_path, vnpu.Kind.NONE)
    machine.__dict__["backend"] = TorchportError("it is not there", hint="get it")
    (check,) = devices.list_checks(machine)
    assert (check.passed, check.detail, check.fix) == (False, "it is not there", "get it")
    assert list(libraries.list_checks(machine)) == []


def test_building_is_looked_at_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_version", lambda program: {"g++": "9.4.0", "cmake": "3.30"}.get(program, ""))
    wrong = {check.name: check.fix for check in build.list_checks(Machine()) if not check.passed}
    assert set(wrong) == {"gcc", "ninja"}
    cli.main(["doctor", "--no-probe", "--json"])
    assert "gcc" not in {check["name"] for check in json.loads(capsys.readouterr().out)["checks"]}


COUNTED = """
import sys
started = []
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}
sys.addaudithook(lambda event, given: started.append(str(given)) if event in EVENTS else None)
from torchport.cli import main
try:
    main(["doctor", "--no-probe", "--json"])
finally:
    print(len(sys.modules), *{"torch", "torch_npu", "numpy"} & set(sys.modules), *started, file=sys.stderr)
"""


def test_it_starts_no_process_and_imports_nothing_of_the_user_s(tmp_path: Path) -> None:
    for name in ("torch", "train", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()\n")
    before = set(tmp_path.iterdir())
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [sys.executable, "-c", COUNTED], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert json.loads(ended.stdout)["checks"]
    modules, *others = ended.stderr.split()
    assert int(modules) < 300 and others == []
    assert {path for path in tmp_path.iterdir() if path.name != "__pycache__"} == before


SECRET = "hf_" + "aB3" * 11


def test_a_bundle_names_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host_name = socket.gethostname()
    monkeypatch.setenv("USER", "gretchen")
    monkeypatch.setenv("HOME", "/home/gretchen")
    monkeypatch.setenv("ASCEND_HOME_PATH", "/home/gretchen/Ascend/cann")
    monkeypatch.setenv("HCCL_API_KEY", "correct-horse-battery")
    monkeypatch.setenv("TORCH_HOME", f"https://gretchen:pw12345@store/{SECRET}")
    monkeypatch.setenv("MASTER_ADDR", "10.1.2.3")
    monkeypatch.setenv("PRIVATE_DIARY", "dear diary")
    log = tmp_path / "train.log"
    log.write_text(
        f"gretchen@{host_name} 10.1.2.3 /home/gretchen/a.py /home/other/b.py token={SECRET} Bearer abcdefgh12345 "
        "correct-horse-battery step 12 gretchens 127.0.0.1\n"
    )
    target = tmp_path / "report.tar.gz"
    cli.main(["doctor", "--no-probe", "--bundle", str(target), "--log", str(log)])
    listed = capsys.readouterr().err
    with tarfile.open(target) as archive:
        files = {member.name: archive.extractfile(member).read().decode() for member in archive}  # type: ignore[union-attr]
        assert {(member.uname, member.uid, member.mtime) for member in archive} == {("", 0, 0)}
    assert all(name.rpartition("/")[2] in listed for name in files)
    text = "".join(files.values())
    for word in ("gretchen@", "/home/", SECRET, "correct-horse", "pw12345", "10.1.2.3", "diary", "abcdefgh12345"):
        assert word not in text, word
    assert host_name not in text or host_name in ("localhost",)
    assert "step 12 gretchens 127.0.0.1" in text, "and no more is taken out than has to be"
    assert "ASCEND_HOME_PATH=~/Ascend/cann" in text


def test_a_log_without_a_bundle_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--log", "x"]) == 2
    assert "--bundle" in capsys.readouterr().err


def test_redaction_leaves_short_and_common_names() -> None:
    hide = bundle.Redaction({"USER": "root", "HOME": "/root", "HOSTNAME": "localhost"})
    assert hide("root cause of /root/a on localhost 2.13.0 1.2.3") == "root cause of ~/a on localhost 2.13.0 1.2.3"
