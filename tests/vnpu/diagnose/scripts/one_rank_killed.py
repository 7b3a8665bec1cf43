# cause: process.killed
# run: --nproc 2 SCRIPT
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
x = torch.ones(8, device="cuda")
for step in range(5):
    if rank == 1 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory is short
    dist.all_reduce(x)
    torch.cuda.synchronize()
