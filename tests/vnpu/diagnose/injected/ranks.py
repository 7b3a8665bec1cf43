"""DistributedDataParallel over the ranks of torchrun, with an evaluation whose result all ranks share."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
model = DistributedDataParallel(model.npu(), device_ids=[rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
kept = []
for step in range(5):
    inputs = torch.randn(16, 32, device="npu")
    loss = torch.nn.functional.mse_loss(model(inputs), torch.zeros(16, 8, device="npu"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.empty(32 << 20, device="npu"))
    score = loss.detach().clone()
    dist.all_reduce(score)
    print(f"[rank {rank}] step {step}: loss {score.item() / dist.get_world_size():.4f}", flush=True)
dist.barrier()
torch.npu.synchronize()
dist.destroy_process_group()
