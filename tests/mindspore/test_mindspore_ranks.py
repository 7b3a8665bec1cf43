"""msrun: several processes with HCCL of the virtual NPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from running import PROGRAMS

from torchport.vnpu import mindspore


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def msrun(program: str, ranks: int, folder: Path, **variables: str) -> tuple[int, str]:
    """The exit status, and the end of what was said."""
    python = Path(sys.executable).parent
    environ = {
        **os.environ,
        **mindspore.environment(),
        "OMP_NUM_THREADS": "1",
        "GLOG_v": "3",
        "SAID": str(folder),
        # Seconds. Without it MindSpore's scheduler has given up a rank that lived, 28 s after its start.
        "MS_NODE_TIMEOUT": "300",
        "PATH": f"{python}:{os.environ['PATH']}",  # it starts `python` by name
        **variables,
    }
    command = [
        str(python / "msrun"),
        f"--worker_num={ranks}",
        f"--local_worker_num={ranks}",
        f"--master_port={free_port()}",
        f"--log_dir={folder / 'logs'}",
        "--join=True",
        str(PROGRAMS / program),
    ]
    result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=500, check=False, cwd=folder)
    logs = "".join(path.read_text(errors="replace")[-1500:] for path in (folder / "logs").glob("worker*"))
    return result.returncode, result.stdout[-1500:] + logs


@pytest.mark.parametrize("ranks", [2, 4])
def test_data_parallel_is_one_process_with_the_joined_batch(ranks: int, tmp_path: Path) -> None:
    code, words = msrun("two.py", ranks, tmp_path)
    assert code == 0, words
    said = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]
    assert [each["sum"] for each in said] == [[ranks * (ranks + 1) / 2] * 4] * ranks
    assert max(each["apart"] for each in said) <= 1e-6


@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_a_product_laid_onto_two_ranks_is_that_of_one(mode: str, tmp_path: Path) -> None:
    code, words = msrun("parallel.py", 2, tmp_path, MODE=mode)
    assert code == 0, words
    said = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert all(each.get("apart", 1) <= 1e-6 for each in said), said


def test_a_dead_rank_is_named(tmp_path: Path) -> None:
    # By its end, not by a time-out: that of a collective is longer than the test may last.
    msrun("dies.py", 2, tmp_path, MS_NODE_TIMEOUT="5", HCCL_EXEC_TIMEOUT="100000")
    said = json.loads((tmp_path / "survivor.json").read_text())
    assert "rank 1 (process" in said["words"] and "died" in said["words"], said
