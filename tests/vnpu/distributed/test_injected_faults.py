"""A link that fails on one rank: the job ends, torchrun starts it again, and it goes on from its checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.diagnose import diagnose_logs

SCRIPT = """
import os, sys
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt:
    del os.environ["VNPU_FAULTS"]  # the machine was mended meanwhile
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
saved = sys.argv[1]
state = torch.load(saved) if os.path.exists(saved) else {"step": 0, "sum": torch.zeros(2)}
total, first = state["sum"].npu(), state["step"]
for step in range(first, 4):
    x = torch.full((2,), float(step + 1), device="npu")
    dist.all_reduce(x)
    total += x
    torch.npu.synchronize()
    if rank == 0:
        torch.save({"step": step + 1, "sum": total.cpu()}, saved)
    dist.barrier()
    torch.npu.synchronize()
print(f"attempt {attempt} rank {rank} began at {first}, sum {total[0].item():g}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.distributed
def test_a_job_is_started_again_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    logs = tmp_path / "logs"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command += [f"--log-dir={logs}", "--redirects=3", str(tmp_path / "train.py"), str(tmp_path / "saved.pt")]
    # The 5th collective of rank 1 is the all-reduce of the third step.
    # Without the first torchrun 2.13 hands rank 1 the root info of the attempt before, whose rank 0 has ended.
    variables = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "VNPU_FAULTS": "timeout@collective:5@rank:1",
        "OMP_NUM_THREADS": "1",
        "HCCL_EXEC_TIMEOUT": "60",
    }
    ended = subprocess.run(
        command, env=os.environ | vnpu.environment() | variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (second,) = logs.glob("*/attempt_1")
    for rank in (0, 1):
        assert (second / f"{rank}/stdout.log").read_text() == f"attempt 1 rank {rank} began at 2, sum 20\n"
    (first,) = logs.glob("*/attempt_0")
    result = diagnose_logs(str(first), None)
    assert result.data["row"] == "collective.silent-rank"
    assert result.findings[0].evidence["ranks"][0] == "1", "the rank that the rule names"
