"""CUDA scripts run unchanged under `torchport run`. The checks run in one process of their own, each is one test here."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from torchport import audit

DATA = Path(__file__).with_name("data")
CHECKS = DATA / "auto_checks.py"
NAMES = [
    node.name
    for path in (CHECKS, DATA / "auto_patterns.py")
    for node in ast.parse(path.read_text()).body
    if getattr(node, "name", "").startswith("check_")
]


def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "torchport", "run", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def outcomes() -> Mapping[str, str]:
    ended = run(CHECKS, CUDA_VISIBLE_DEVICES="3,1")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_check(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]


def test_unpatch_restores_every_attribute() -> None:
    ended = subprocess.run([sys.executable, DATA / "unpatch.py"], capture_output=True, text=True, check=False)
    found = json.loads(ended.stdout)
    assert found.pop("patched") > 300
    assert found == {
        "used": True,
        "different": [],
        "added": [],
        "device": ["cuda", "npu", "npu:0", "device(type='npu', index=0)"],
        "finders": [],
    }


@pytest.mark.parametrize("question", ["get_device_properties(0).total_memory", "mem_get_info()[1]"])
def test_a_device_that_is_not_used_yet_answers(question: str, tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(f"import torch\nprint(torch.cuda.{question} > 2**30)\n")
    ended = run("-q", tmp_path / "ask.py")
    assert (ended.stdout, ended.returncode) == ("True\n", 0), ended.stderr


SCRIPT = """\
import torch
x = torch.eye(3, device="cuda", requires_grad=True)
for _ in range(4):
    y = torch.linalg.matrix_exp(x)
y.sum().backward()
try:
    torch.cuda.temperature()
except RuntimeError:
    print("refused")
getattr(torch, "cuda").synchronize()
"""


def test_audit_names_each_place_once(tmp_path: Path) -> None:
    script, log = tmp_path / "train.py", tmp_path / "audit.jsonl"
    script.write_text(SCRIPT)
    ended = run("--audit", log, script)
    assert (ended.returncode, ended.stdout) == (0, "refused\n")
    events = {(event.kind, event.line, event.original): event for event in audit.read_events(log)}
    assert {event.file for event in events.values()} == {str(script), audit.BACKWARD}
    redirected = {key[1:]: event for key, event in events.items() if key[0] is audit.Kind.REDIRECTED}
    assert redirected[(2, 'torch.eye("cuda")')].replacement == '"npu"'
    assert redirected[(10, "torch.cuda.synchronize")].replacement == "torch.npu.synchronize"
    forward = events[(audit.Kind.FALLBACK, 4, "torch.linalg.matrix_exp(x)")]
    assert (forward.count, forward.bytes) == (4, 4 * 36)
    backward = events[(audit.Kind.FALLBACK, 0, "LinalgMatrixExpBackward0")]
    assert backward.file == audit.BACKWARD and backward.bytes > 0
    refused = events[(audit.Kind.UNSUPPORTED, 7, "torch.cuda.temperature")]
    assert refused.count == 1 and "npu-smi" in refused.replacement
    for part in ("redirected to the NPU", "torch.linalg.matrix_exp(x)", f"{script}:7", "LinalgMatrixExpBackward0"):
        assert part in ended.stderr


def test_places_are_the_script_s_own(tmp_path: Path) -> None:
    """Not those of what stands between it and torch: a context manager's machinery, a deprecation's wrapper."""
    script, log = tmp_path / "train.py", tmp_path / "audit.jsonl"
    script.write_text(
        "import torch\nwith torch.cuda.nvtx.range('x'):\n    pass\ntorch.cuda.amp.GradScaler()\n"
        "import torch.cuda.comm\ntry:\n    torch.cuda.comm.scatter(torch.ones(2), [0])\n"
        "except NotImplementedError as error:\n    print(error)\n"
    )
    ended = run("--audit", log, script)
    assert "torch.cuda.comm.scatter does not exist on the NPU: use torch.distributed" in ended.stdout
    found = {(event.kind, event.line) for event in audit.read_events(log) if event.file == str(script)}
    assert {event.file for event in audit.read_events(log)} == {str(script)}
    assert found == {*((audit.Kind.REDIRECTED, line) for line in (2, 4)), (audit.Kind.UNSUPPORTED, 7)}


def test_the_program_is_not_disturbed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\nprint(sys.argv, sys.path[0], flush=True)\ntorch.zeros(2, device='cuda').to('cuda', wrong=1)\n"
    )
    ended = run("-q", script, "--", "--lr", "1")
    assert ended.returncode == 1
    assert ended.stdout == f"['{script}', '--lr', '1'] {tmp_path}\n"
    assert "torchport" not in ended.stderr and f'File "{script}", line 3' in ended.stderr


def test_children_are_redirected_too(tmp_path: Path) -> None:
    script, log = tmp_path / "train.py", tmp_path / "audit.jsonl"
    script.write_text(
        "import torch, torch.multiprocessing as mp, subprocess, sys\n"
        "def work(rank):\n"
        "    print(torch.zeros(1, device=f'cuda:{rank}').device, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, nprocs=1)\n"
        "    subprocess.run([sys.executable, '-c', 'import torch; print(torch.cuda.is_available())'], check=True)\n"
    )
    ended = run("--audit", log, script)
    assert (ended.returncode, ended.stdout) == (0, "cuda:0\nTrue\n"), ended.stderr
    assert [(event.line, event.original) for event in audit.read_events(log) if event.file == str(script)] == [
        (3, 'torch.zeros("cuda:0")')
    ]


def test_as_is_redirects_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nprint(torch.cuda.is_available(), torch.zeros(1, device='npu').device)\n")
    assert run("--as-is", script, TORCHPORT_AUTO="1").stdout == "False npu:0\n"


def test_import_as_the_first_line(tmp_path: Path) -> None:
    code = (
        "import torchport.auto\nimport torch\nprint(torch.device('cuda').type == 'cuda', torch.ones(1).cuda().is_cuda)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout == "True True\n"


def test_without_an_npu_import_torch_says_so(tmp_path: Path) -> None:
    code = "import torchport.auto\nprint('here', flush=True)\nimport torch"
    environment = {**os.environ, "VNPU_LIBRARIES": str(tmp_path), "LD_LIBRARY_PATH": ""}
    environment.pop("TORCHPORT_BACKEND", None)
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "here\n")
    assert "There is no NPU backend" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(("devices", "said"), [("0", False), ("0,1", True)])
def test_data_parallel_on_several_devices_is_said(devices: str, said: bool, tmp_path: Path) -> None:
    script = "import torch\nm = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())\nm(torch.ones(4, 2).cuda())\n"
    (tmp_path / "train.py").write_text(script)
    ended = run("--device-list", devices, tmp_path / "train.py")
    assert ended.returncode == 0, ended.stderr
    assert ("torch.nn.DataParallel on 2 NPUs" in ended.stderr) is said
    assert ("--device-list 0" in ended.stderr and "--nproc" in ended.stderr) is said


def test_memory_formats_are_written_down(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\nx = torch.ones(1, 2, 3, 4).cuda().to(memory_format=torch.channels_last)\n"
    )
    ended = run(tmp_path / "a.py")
    assert ended.returncode == 0, ended.stderr
    assert "a.py:2  memory_format=torch.channels_last -> memory_format=torch.contiguous_format" in ended.stderr


@pytest.mark.parametrize("first", ["torch.ones(1).cuda()", "torch.cuda.device_count()"])
@pytest.mark.parametrize(
    ("before", "said"),
    [({}, "1 True"), ({"CUDA_VISIBLE_DEVICES": "0,1"}, "1 True"), ({"ASCEND_RT_VISIBLE_DEVICES": "0,1"}, "2 True")],
    ids=["unset", "set for CUDA", "set for the NPU, which stays"],
)
def test_visible_devices_until_the_first_use(before: dict[str, str], said: str, first: str, tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text(
        f"import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n{first}\n"
        "print(torch.cuda.device_count(), torch.ones(1).cuda().is_cuda)\n"
    )
    assert run(script, **before).stdout.strip() == said
