import os, torch, fl
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from faults import FAULTS

dist.init_process_group("nccl")
r = dist.get_rank()
torch.cuda.set_device(r)
dev = torch.device("cuda", r)
fl.setup(FAULTS)
torch.manual_seed(0)
m = nn.Sequential(
    nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(approximate="tanh"), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 3)
).to(dev)
d = DDP(m, device_ids=[r])
opt = torch.optim.AdamW(d.parameters(), 1e-3)
g = torch.Generator().manual_seed(10 + r)
for step in range(5):
    x = torch.randn(8, 12, generator=g).to(dev)
    y = torch.randint(0, 3, (8,), generator=g).to(dev)
    out = d(x)
    n = torch.tensor([float((y != 0).sum())], device=dev)
    dist.all_reduce(n)
    loss = F.cross_entropy(out, y, reduction="none")[y != 0].sum() * 2 / n[0]
    opt.zero_grad()
    loss.backward()
    opt.step()
    if r == 0:
        print(step, loss.item())
dist.destroy_process_group()
