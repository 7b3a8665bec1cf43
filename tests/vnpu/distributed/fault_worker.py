"""One rank of test_group_faults: a first collective goes well, in the second the victim meets a fault.

python fault_worker.py STORE RANK SIZE COLLECTIVE FAULT
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

VICTIM = 1
# name in torch.distributed: the call that it becomes
COLLECTIVES = {
    "all_reduce": "HcclAllReduce",
    "broadcast": "HcclBroadcast",
    "all_gather": "HcclAllGather",
    "reduce_scatter": "HcclReduceScatter",
    "all_to_all": "HcclAlltoAll",
    "barrier": "HcclAllReduce",
}


def main(store: str, rank: int, size: int, collective: str, fault: str) -> None:
    import torch
    import torch.distributed as dist

    torch.npu.set_device(rank)
    dist.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=size)

    def call(count: int, dtype: torch.dtype) -> None:
        part = torch.ones(count, dtype=dtype, device="npu")
        whole = torch.ones(count * size, dtype=dtype, device="npu")
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(part),
            "broadcast": lambda: dist.broadcast(part, 0),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "all_to_all": lambda: dist.all_to_all_single(whole, whole.clone()),
            "barrier": dist.barrier,
        }
        calls[collective]()
        torch.npu.synchronize()

    call(1000, torch.float32)
    if rank != VICTIM:
        call(1000, torch.float32)
    elif fault == "wrong" and collective == "barrier":
        dist.broadcast(torch.ones(5, device="npu"), 0)
        torch.npu.synchronize()
    elif fault == "wrong":
        call(500, torch.int32)
    elif fault == "exception":
        raise RuntimeError("the victim's own error")
    elif fault == "missing":
        signal.pause()
    else:
        os.kill(os.getpid(), getattr(signal, fault))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
