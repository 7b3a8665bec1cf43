"""The line that `torchport run` ends with: which NPUs each process of a script has used, and nothing else is changed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from torchport.results.used_devices import IDLE, UNUSED, USED, parse_used_devices

COMPUTES = "import torch\nx = torch.ones(4, device='cuda')\nfor _ in range(3): x = x + 1\nprint(x.tolist())\n"
ON_CPU = "import torch\nprint(torch.ones(4).tolist())\n"
TRAINS = """
import torch
net = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.ones(3, 4).cuda()).sum().backward()
    optimizer.step()
print(next(net.parameters()).sum().item())
"""
CHILD = "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, 'child.py']).returncode)\n"


def run(
    folder: Path, script: str, *words: str, command: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TASK_QUEUE_ENABLE": "0", **variables}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    started = ["--", *command] if command else ["train.py"]
    return subprocess.run(
        [sys.executable, "-m", "torchport", "run", *words, *started],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def said(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines about NPUs; all of stderr, and each of them can be read."""
    lines = [line for line in ended.stderr.splitlines() if line.startswith((USED, UNUSED))]
    assert all(parse_used_devices(line) for line in lines)
    assert "torchport: " not in ended.stdout
    return lines


def test_one_process_and_silence(tmp_path: Path) -> None:
    loud, silent = run(tmp_path, COMPUTES), run(tmp_path, COMPUTES, "-q")
    assert said(loud) == [f"{USED}: npu:0, 4 operators"]
    assert loud.stderr.endswith(f"{said(loud)[0]}\n")
    assert "torchport" not in silent.stderr
    assert loud.stdout == silent.stdout == "[4.0, 4.0, 4.0, 4.0]\n"
    assert loud.returncode == silent.returncode == 0


def test_steps_of_a_recorded_run(tmp_path: Path) -> None:
    ended = run(tmp_path, TRAINS, "--record", "recording", "--level", "none", "--on", "npu")
    (use,) = parse_used_devices(*said(ended)) or ()
    (device,) = use.devices or ()
    assert device.operators and device.steps == (3, 3)


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (ON_CPU, UNUSED),
        ("import torch\ntorch.cuda.set_device(0)\ntorch.empty(4, device='cuda')\n" + ON_CPU, f"{UNUSED}; npu:0 {IDLE}"),
        ("print('no torch')", None),
    ],
)
def test_nothing_computed(tmp_path: Path, script: str, line: str | None) -> None:
    ended = run(tmp_path, script)
    assert (ended.returncode, said(ended)) == (0, [line] if line else [])


def test_two_ranks_each_with_its_card(tmp_path: Path) -> None:
    script = "import os, torch\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n" + COMPUTES
    ended = run(tmp_path, script, "--nproc", "2", "--device-list", "2,5")
    assert ended.returncode == 0, ended.stderr
    assert said(ended) == [f"{USED}: rank 0: npu:0 (card 2), 4 operators; rank 1: npu:1 (card 5), 4 operators"]


def test_two_ranks_on_one_card(tmp_path: Path) -> None:
    ended = run(tmp_path, COMPUTES, "--nproc", "2")
    assert said(ended) == [f"{USED}: rank 0: npu:0, 4 operators; rank 1: npu:0, 4 operators"]


def test_a_rank_that_opens_the_first_card_and_computes_on_its_own(tmp_path: Path) -> None:
    script = (
        "import os, torch\nrank = int(os.environ['RANK'])\ntorch.empty(1, device='cuda')\n"
        "torch.cuda.set_device(rank)\n" + COMPUTES
    )
    ended = run(tmp_path, script, "--nproc", "2")
    assert said(ended) == [f"{USED}: rank 0: npu:0, 4 operators; rank 1: npu:1, 4 operators and npu:0 {IDLE}"]


def test_ranks_of_which_one_computes(tmp_path: Path) -> None:
    script = "import os, torch\nif os.environ['RANK'] == '0':\n    print((torch.ones(1).cuda() + 1).item())\n"
    ended = run(tmp_path, script, "--nproc", "2")
    assert said(ended) == [f"{USED}: rank 0: npu:0, 1 operator; rank 1: none"]


def test_a_rank_that_ends_without_a_report_is_unknown(tmp_path: Path) -> None:
    script = COMPUTES + "import os\nif os.environ['RANK'] == '1': os._exit(0)\n"
    ended = run(tmp_path, script, "--nproc", "2")
    assert ended.returncode == 0, ended.stderr
    assert said(ended) == [f"{USED}: rank 0: npu:0, 4 operators; rank 1: unknown"]


def test_ranks_of_another_launcher_speak_for_themselves(tmp_path: Path) -> None:
    loop = "for r in 0 1; do RANK=$r WORLD_SIZE=2 python train.py; done"
    ended = run(tmp_path, COMPUTES, command=["bash", "-c", loop])
    assert ended.returncode == 0, ended.stderr
    assert said(ended) == [f"{USED}: rank {rank}: npu:0, 4 operators" for rank in (0, 1)]


@pytest.mark.parametrize(
    ("end", "status", "speaks"),
    [
        ("raise ValueError('wrong')", 1, True),
        ("import sys\nsys.exit(7)", 7, True),
        ("import atexit, os\natexit.register(print, 'over')", 0, True),
        ("import sys\nsys.stderr = sys.stdout", 0, True),
        ("import os\nos.closerange(3, 1000)\nfiles = [open('train.py') for _ in range(300)]", 0, True),
        ("import os\nos.close(2)", 0, False),
        ("import os, sys\nsys.stdout.flush()\nos._exit(5)", 5, False),
        ("import os, signal, sys\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, False),
        ("raise KeyboardInterrupt", -signal.SIGINT, False),
    ],
)
def test_the_end_of_a_script_stays_as_it_is(tmp_path: Path, end: str, status: int, speaks: bool) -> None:
    script = COMPUTES.replace("cuda", "npu") + end
    loud, silent = run(tmp_path, script, "--as-is"), run(tmp_path, script, "--as-is", "-q")
    assert loud.returncode == silent.returncode == status, loud.stderr
    # torch_npu says on stdout, with the time and its process, that it knows no code of the exception.
    assert re.sub(r"\d+", "", loud.stdout) == re.sub(r"\d+", "", silent.stdout)
    assert said(loud) == [f"{USED}: npu:0, 4 operators"] * speaks


def test_a_redirected_script_is_interrupted_as_ever(tmp_path: Path) -> None:
    """Python forgets that it has to end by SIGINT if a handler at its end executes text, as dataclasses do."""
    ended = run(tmp_path, COMPUTES + "raise KeyboardInterrupt")
    assert (ended.returncode, said(ended)) == (-signal.SIGINT, [])


def test_a_reader_of_stderr_that_is_gone_changes_no_status(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPUTES.replace("cuda", "npu"))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        command = [sys.executable, "-m", "torchport", "run", "--as-is", "train.py"]
        ended = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "TORCH_NPU_WARNING_DISABLE": "1"}, stderr=closed, check=False
        )
    assert ended.returncode == 0


@pytest.mark.parametrize(
    ("child", "line"),
    [(COMPUTES, f"{USED}: npu:0, 4 operators"), (ON_CPU, UNUSED), (COMPUTES + "import os\nos._exit(0)", None)],
)
def test_the_first_python_speaks_for_its_children(tmp_path: Path, child: str, line: str | None) -> None:
    (tmp_path / "child.py").write_text(child)
    ended = run(tmp_path, "import torch\n" + CHILD)
    assert ended.returncode == 0, ended.stderr
    assert said(ended) == [line] if line else not said(ended)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_multiprocessing(tmp_path: Path, method: str) -> None:
    script = (
        "import torch, multiprocessing\ndef work(card):\n    (torch.ones(1, device=f'cuda:{card}') + 1).item()\n"
        f"if __name__ == '__main__':\n    context = multiprocessing.get_context('{method}')\n"
        "    for card in (1, 2):\n        child = context.Process(target=work, args=(card,))\n"
        "        child.start()\n        child.join()\n        assert child.exitcode == 0\n"
    )
    ended = run(tmp_path, script)
    assert ended.returncode == 0, ended.stderr
    uses = parse_used_devices(*said(ended)) or ()
    devices = [one for use in uses for one in use.devices or ()]
    assert [(one.device, one.operators) for one in devices] == [("npu:1", 2), ("npu:2", 2)]
    assert len({use.process for use in uses}) == 2


def test_a_fork_of_a_process_that_has_computed_adds_nothing(tmp_path: Path) -> None:
    script = COMPUTES + "import os, sys\nif os.fork() == 0: sys.exit(0)\nos.wait()\n"
    assert said(run(tmp_path, script)) == [f"{USED}: npu:0, 4 operators"]


def test_dry_mode_counts_nothing(tmp_path: Path) -> None:
    assert said(run(tmp_path, COMPUTES, VNPU_MODE="dry")) == [f"{USED}: npu:0"]
