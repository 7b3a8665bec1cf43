"""Run-time redirection where no torch is needed: names, variables, the audit file, the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import torchport.auto
from torchport import audit
from torchport.auto.devices import cuda_name, npu_name
from torchport.auto.distributed import hccl_name, nccl_name
from torchport.auto.environment import find_derived_variables, translate_variables
from torchport.auto.log import SHOWN, format_summary
from torchport.auto.views import Name
from torchport.convert.launcher import LAUNCHER, plan_launcher

SOURCE = Path(audit.__file__).parents[1]
torchport.auto.unpatch()  # importing it is a request, which the process of the tests does not make


@pytest.mark.parametrize(
    ("cuda", "npu"), [("cuda", "npu"), ("cuda:0", "npu:0"), ("cuda:15", "npu:15"), ("cpu", "cpu"), ("meta", "meta")]
)
def test_device_names_go_both_ways(cuda: str, npu: str) -> None:
    assert (npu_name(cuda), cuda_name(npu)) == (npu, cuda)


@pytest.mark.parametrize(
    "text", ["/data/cuda/x.pt", "cuda:0.pt", "cuda:", "cuda:x", "cudagraph", "CUDA", "install cuda: see", "", "cuda:１"]
)
def test_other_texts_stay(text: str) -> None:
    assert npu_name(text) is text


@pytest.mark.parametrize(
    ("nccl", "hccl"),
    [
        ("nccl", "hccl"),
        ("gloo", "gloo"),
        ("cpu:gloo,cuda:nccl", "cpu:gloo,npu:hccl"),
        ("cuda:nccl", "npu:hccl"),
        ("mpi", "mpi"),
    ],
)
def test_backend_names_go_both_ways(nccl: str, hccl: str) -> None:
    assert (hccl_name(nccl), nccl_name(hccl)) == (hccl, nccl)
    assert hccl_name(nccl.upper()).lower() == hccl


def test_a_name_equals_both() -> None:
    name = Name("nccl", "hccl")
    assert name == "nccl" and name == "hccl" and name == "hccl" and name != "gloo" and (name != "hccl") is False
    assert (f"{name}", hash(name), {"nccl": 1}[name]) == ("nccl", hash("nccl"), 1)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}),
        ({"CUDA_VISIBLE_DEVICES": "3, 1"}, {"ASCEND_RT_VISIBLE_DEVICES": "1,3"}),
        ({"CUDA_VISIBLE_DEVICES": "2,-1,3"}, {"ASCEND_RT_VISIBLE_DEVICES": "2"}),
        ({"CUDA_VISIBLE_DEVICES": ""}, {"ASCEND_RT_VISIBLE_DEVICES": ""}),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, {"ASCEND_RT_VISIBLE_DEVICES": ""}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8f7e"}, {}),
        ({"CUDA_VISIBLE_DEVICES": "0", "ASCEND_RT_VISIBLE_DEVICES": "5"}, {}),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,roundup_power2_divisions:4,expandable_segments:True"},
            {"PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"},
        ),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, {}),
        ({"NCCL_BUFFSIZE": "4194304"}, {"HCCL_BUFFSIZE": "4"}),
        ({"NCCL_SOCKET_IFNAME": "eth0"}, {"HCCL_SOCKET_IFNAME": "eth0"}),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, {"ASCEND_LAUNCH_BLOCKING": "1"}),
        ({"NCCL_DEBUG": "INFO", "CUDA_HOME": "/usr/local/cuda", "NCCL_ALGO": "Ring"}, {}),
        ({"HOME": "/root"}, {}),
    ],
)
def test_variables(given: dict[str, str], found: dict[str, str]) -> None:
    assert translate_variables(given) == found


def test_audit_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    events = [
        audit.Event(audit.Kind.REDIRECTED, "/a/ü.py", 3, "torch.cuda.synchronize", "torch.npu.synchronize", 7),
        audit.Event(audit.Kind.FALLBACK, audit.BACKWARD, 0, "X", "", 2, 4096),
    ]
    path = tmp_path / "audit.jsonl"
    audit.append_events(events, path)
    audit.append_events(events[:1], path, 1)
    audit.append_events([], path)
    assert audit.read_events(path) == [*events, events[0]]
    assert '"rank": 1' in path.read_text().splitlines()[-1]


@pytest.mark.parametrize("line", ["{}", "[]", '{"audit": 2}', "text", '{"audit": 1, "kind": "else"}'])
def test_a_damaged_audit_names_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"audit\.jsonl:1 is no line of an audit"):
        audit.read_events(path)


def test_summary_is_short() -> None:
    events = [audit.Event(audit.Kind.REDIRECTED, "a.py", n, "f", "g", n) for n in range(1, 20)]
    lines = list(format_summary(events, ""))
    assert lines[0] == "torchport: redirected to the NPU: 190 calls at 19 places"
    assert lines[1] == "  a.py:19  f -> g  (19x)" and lines[-1] == "  ... and 13 more: `--audit FILE` lists all"
    assert len(lines) == SHOWN + 2 and list(format_summary([], "")) == []


def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the new variables that `torchport run` replaces itself with."""
    from torchport import vnpu
    from torchport.cli import main, run

    (tmp_path / "train.py").touch()
    monkeypatch.setattr(vnpu, "environment", dict)
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    called = []
    monkeypatch.setattr(run.os, "execve", lambda *given: called.append(given))
    options, _, passed = " ".join(words).partition(" -- ")
    main(["run", *options.split(), str(tmp_path / "train.py"), *(["--", *passed.split()] if passed else [])])
    _, command, environment = called[0]
    return [word.replace(str(tmp_path / "train.py"), "train.py") for word in command[1:]], environment


def test_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, environment = starts(tmp_path, monkeypatch, "-q -- --lr 1")
    assert command == ["train.py", "--lr", "1"]
    assert environment["TORCHPORT_AUTO"] == "1" and environment["TORCHPORT_SUMMARY"] == "0"
    assert environment["PYTHONPATH"].split(":")[0].endswith("torchport/start")


def test_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, _ = starts(tmp_path, monkeypatch, "--nproc 4 -- --lr 1")
    assert command[2:5] == ["-m", "torch.distributed.run", "--standalone"]
    assert command[5:] == ["--nproc-per-node=4", "train.py", "--lr", "1"]


@pytest.mark.parametrize(("given", "visible"), [("0,1,2,3", "0,1,2,3"), ("6,2", "2,6"), ("5", "5")])
def test_device_list_is_the_guides_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, visible: str
) -> None:
    """The guide sorts the list and numbers the processes along it. The script may start them itself, or we do."""
    command, environment = starts(tmp_path, monkeypatch, f"--device-list {given}")
    assert (command, environment["ASCEND_RT_VISIBLE_DEVICES"]) == (["train.py"], visible)
    command, environment = starts(tmp_path, monkeypatch, f"--nproc auto --device-list {given}")
    assert command[5] == f"--nproc-per-node={given.count(',') + 1}"
    assert environment["ASCEND_RT_VISIBLE_DEVICES"] == visible


def test_checked_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plain = starts(tmp_path, monkeypatch, "")
    assert not {"VNPU_CHECK_MEMORY", "PYTORCH_NO_NPU_MEMORY_CACHING"} & plain.keys()
    _, checked = starts(tmp_path, monkeypatch, "--check-memory")
    assert (checked["VNPU_CHECK_MEMORY"], checked["PYTORCH_NO_NPU_MEMORY_CACHING"]) == ("1", "1")


def test_memory_of_real_hardware_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchport import vnpu
    from torchport.cli import run
    from torchport.errors import TorchportError

    monkeypatch.setattr(vnpu, "detect", lambda environ: vnpu.Backend(vnpu.Kind.CANN, "CANN is here."))
    with pytest.raises(TorchportError, match="is the virtual NPU's: CANN is here"):
        run._checking({})


def test_several_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--nproc 2 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29501"
    command, _ = starts(tmp_path, monkeypatch, words)
    assert command[4:] == [
        "--nnodes=2",
        "--node-rank=1",
        "--master-addr=10.0.0.1",
        "--master-port=29501",
        "--nproc-per-node=2",
        "train.py",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nproc", "0"], "0 is no number of processes: 1 or more"),
        (["--nproc", "auto"], "needs a --device-list"),
        (["--device-list", "1,1"], "no list of different device numbers"),
        (["--device-list", "1,x"], "no list of different device numbers"),
        (["--nproc", "3", "--device-list", "0,1"], "3 processes cannot share the 2 NPUs"),
        (["--as-is", "--audit", "x"], "--as-is redirects nothing"),
        (["--record", "x", "--on", "cpu", "--check-memory"], "--check-memory is for a run on an NPU"),
        (["--audit", "/no/such/folder/x"], "cannot be written: No such file"),
    ],
)
def test_what_cannot_be_is_a_usage_error(tmp_path: Path, words: list[str], says: str) -> None:
    library = tmp_path / "libascendcl.so"
    library.touch()
    (tmp_path / "train.py").touch()
    command = [sys.executable, "-m", "torchport", "run", *words, str(tmp_path / "train.py")]
    environment = {"PATH": "/usr/bin:/bin", "VNPU_LIBRARIES": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and says in ended.stderr


def test_the_environments_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    start = SOURCE / "torchport" / "start"
    code = "import sys; print(sys.modules['sitecustomize'].__file__, [path for path in sys.path if 'auto' in path])"
    environment = {"PYTHONPATH": f"{start}:{tmp_path}:{SOURCE}", "TORCHPORT_AUTO": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == (f"mine\n{tmp_path / 'sitecustomize.py'} []\n", "")


def test_the_generated_launcher_uses_the_visible_devices(tmp_path: Path) -> None:
    place = tmp_path / LAUNCHER
    plan_launcher("main.py").write(place)
    (tmp_path / "torchrun").write_text("#!/bin/sh\necho $*\n")
    (tmp_path / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ASCEND_RT_VISIBLE_DEVICES": "0,1,2"}
    ended = subprocess.run([place, "--lr", "1"], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert "--nproc_per_node=3" in ended.stdout and ended.stdout.endswith("./main.py --lr 1\n")


PROJECT = """\
import torch
name = "cuda"
device = torch.device("cuda")
x = getattr(torch, name).Event()
y = torch.zeros(2).to(device)
z = torch.zeros(2).to(device)  # not cuda, whatever it says
"""


def test_convert_reports_what_only_a_run_could_see(tmp_path: Path) -> None:
    script, log = tmp_path / "train.py", tmp_path / "audit.jsonl"
    script.write_text(PROJECT)
    kinds = audit.Kind
    events = [
        audit.Event(kinds.REDIRECTED, str(script), 3, 'torch.device("cuda")', '"npu"', 1),
        audit.Event(kinds.REDIRECTED, str(script), 4, "torch.cuda.Event", "torch.npu.Event", 3),
        audit.Event(kinds.REDIRECTED, str(script), 5, 'torch.Tensor.to("cuda:0")', '"npu:0"', 1),
        audit.Event(kinds.FALLBACK, str(script), 5, "torch.linalg.inv(x)", "", 2, 8_000_000),
        audit.Event(kinds.UNSUPPORTED, str(script), 6, "torch.cuda.temperature", "use `npu-smi`", 1),
        audit.Event(kinds.REDIRECTED, "/elsewhere/lib.py", 4, "torch.cuda.Event", "torch.npu.Event", 3),
        audit.Event(kinds.FALLBACK, audit.BACKWARD, 0, "InvBackward0", "", 2, 8),
    ]
    audit.append_events(events, log)
    command = [sys.executable, "-m", "torchport", "convert", str(script), "--diff", "--json", "--audit", str(log)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [
        (one["code"], one["location"]["line"])
        for one in json.loads(ended.stdout)["findings"]
        if one["code"] in ("TP331", "TP332", "TP333")
    ]
    assert found == [("TP331", 4), ("TP332", 5), ("TP333", 6)] and ended.returncode == 1


def test_an_unreadable_audit_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROJECT)
    command = [sys.executable, "-m", "torchport", "convert", str(tmp_path), "--diff", "--audit", str(tmp_path / "none")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "the audit cannot be read" in ended.stderr


def test_two_may_wait_for_one_module(tmp_path: Path) -> None:
    (tmp_path / "awaited.py").write_text("value = 1\n")
    code = """
from torchport.on_import import after_import
after_import("awaited", lambda module: print("first", module.value))
after_import("awaited", lambda module: print("second", module.value))
import awaited
"""
    environment = {"PYTHONPATH": f"{SOURCE}:{tmp_path}"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (sorted(ended.stdout.splitlines()), ended.stderr) == (["first 1", "second 1"], "")


def test_a_variable_that_was_put_over_follows_the_one_of_cuda() -> None:
    """Not one that says something else, and not one that nobody set."""
    both = {"CUDA_VISIBLE_DEVICES": "0,1", "ASCEND_RT_VISIBLE_DEVICES": "0,1"}
    assert find_derived_variables({"ASCEND_RT_VISIBLE_DEVICES": "0,1"}) == frozenset()
    assert find_derived_variables({**both, "ASCEND_RT_VISIBLE_DEVICES": "3"}) == frozenset()
    assert translate_variables({**both, "CUDA_VISIBLE_DEVICES": "1"}) == {}
    assert find_derived_variables(both) == {"ASCEND_RT_VISIBLE_DEVICES"}
    changed = {**both, "CUDA_VISIBLE_DEVICES": "1"}
    assert translate_variables(changed, find_derived_variables(both)) == {"ASCEND_RT_VISIBLE_DEVICES": "1"}
