# cause: collective.silent-rank
# run: --nproc 2 SCRIPT
# env: HCCL_EXEC_TIMEOUT=15
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
x = torch.ones(8, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
if rank == 0:
    dist.all_reduce(x)  # only here
    torch.cuda.synchronize()
time.sleep(600)
