"""Trains on parts of a global batch, whatever the number of processes: `batch_parts.py SEED`, of its data."""

import os
import sys

import torch
from torch import distributed

world, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
if world > 1:
    distributed.init_process_group("nccl")
torch.cuda.set_device(rank)
torch.manual_seed(0)
layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)]
model = torch.nn.Sequential(*layers).cuda()
if world > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draw = torch.Generator().manual_seed(int(sys.argv[1]))
for _ in range(2):
    x, y = torch.randn(8, 4, generator=draw), torch.randint(0, 2, (8,), generator=draw)
    x, y = x[rank::world].cuda(), y[rank::world].cuda()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
