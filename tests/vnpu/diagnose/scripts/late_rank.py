# cause: collective.connect
# run: --nproc 2 SCRIPT
# env: HCCL_CONNECT_TIMEOUT=120
import os
import time

os.environ["HCCL_CONNECT_TIMEOUT"] = "3"
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
if rank == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(8, device="cuda"))
torch.cuda.synchronize()
