"""The faults of test_faults through torch_npu as it is: every other rank ends by itself, and its output says which
rank, which collective and what was wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fault_worker import COLLECTIVES, VICTIM
from test_faults import NEVER, exec_timeout

from torchport import vnpu

SIZE = 3
HERE = Path(__file__).parent
FAULTS = {
    "SIGKILL": "rank 1 (process {victim}) died after 1 collectives: it was killed or crashed",
    "SIGSTOP": "rank 1 (process {victim}) is stopped (SIGSTOP)",
    "exception": "rank 1 (process {victim}) has left the communicator after 1 collectives",
    "wrong": "what differs: ",
    "missing": "rank 1 (process {victim}) is running and has finished 1 collectives",
}
QUICK = {("SIGKILL", "all_reduce")}  # three imports of torch_npu each: the rest is for `make distributed`
CASES = [
    pytest.param(fault, collective, marks=[] if (fault, collective) in QUICK else pytest.mark.distributed)
    for fault in FAULTS
    for collective in COLLECTIVES
]


@pytest.mark.parametrize(("fault", "collective"), CASES)
def test_every_other_rank_ends_and_says_why(fault: str, collective: str, tmp_path: Path) -> None:
    limits = {"HCCL_EXEC_TIMEOUT": str(exec_timeout(fault)), "HCCL_CONNECT_TIMEOUT": str(NEVER)}
    environ = os.environ | vnpu.environment() | limits | {"OMP_NUM_THREADS": "1"}
    environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    before = set(os.listdir("/dev/shm"))
    ranks = []
    try:
        for rank in range(SIZE):
            command = [sys.executable, str(HERE / "fault_worker.py"), str(tmp_path / "store"), str(rank), str(SIZE)]
            output = (tmp_path / f"{rank}.log").open("w")
            ranks.append(
                subprocess.Popen([*command, collective, fault], env=environ, stdout=output, stderr=subprocess.STDOUT)
            )
        for number, rank in enumerate(ranks):
            if number == VICTIM:
                continue
            assert rank.wait() != 0
            text = (tmp_path / f"{number}.log").read_text()
            assert FAULTS[fault].format(victim=ranks[VICTIM].pid) in text, text
            assert f"{COLLECTIVES[collective]} #2 of communicator " in text
            assert f"failed on rank {number} of {SIZE}" in text
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert set(os.listdir("/dev/shm")) == before
