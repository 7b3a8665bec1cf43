# cause: collective.mismatch
# run: --nproc 2 SCRIPT
import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
outputs = torch.ones(8 if rank == 0 else 5, 4, device="cuda")  # the last batch is smaller on one
dist.all_reduce(outputs)
torch.cuda.synchronize()
print(rank, outputs.sum().item())
