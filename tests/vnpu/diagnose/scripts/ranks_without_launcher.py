# cause: launch.variables
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
dist.all_reduce(x)
print(x)
