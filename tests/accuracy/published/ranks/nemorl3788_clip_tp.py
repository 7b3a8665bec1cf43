"""Regression transformer-MLP with torch TP (Colwise/Rowwise) and global gradient-norm clipping."""

import argparse, os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Policy(nn.Module):
    def __init__(self, d=16, n=3):
        super().__init__()
        self.encoder = nn.Linear(12, d)
        self.blocks = nn.ModuleList(MLP(d) for _ in range(n))
        self.value = nn.Linear(d, 1)

    def forward(self, x):
        x = self.encoder(x)
        for b in self.blocks:
            x = b(x)
        return self.value(x).squeeze(-1)


def local(t):
    return t.to_local() if isinstance(t, DTensor) else t


def grad_norm(params, count_replicas):
    shards = torch.zeros((), device="cuda")
    copies = torch.zeros((), device="cuda")
    for p in params:
        sq = local(p.grad).pow(2).sum()
        cut = isinstance(p, DTensor) and any(pl.is_shard() for pl in p.placements)
        if cut or count_replicas:
            shards += sq
        else:
            copies += sq
    dist.all_reduce(shards)
    return (shards + copies).sqrt()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    a = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    torch.manual_seed(66)
    policy = Policy().cuda()
    if world > 1:
        tp = init_device_mesh("cuda", (world,))
        for b in policy.blocks:
            parallelize_module(b, tp, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    opt = torch.optim.SGD(policy.parameters(), lr=0.1, momentum=0.8, foreach=False)
    gen = torch.Generator().manual_seed(12)
    mix = torch.randn(12, generator=gen)
    for it in range(12):
        x = torch.randn(32, 12, generator=gen)
        y = torch.sin(x @ mix).cuda()
        loss = (policy(x.cuda()) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            total = grad_norm(list(policy.parameters()), a.fault)
            scale = (0.5 / (total + 1e-6)).clamp(max=1.0)
            for p in policy.parameters():
                local(p.grad).mul_(scale)
        opt.step()
        if dist.get_rank() == 0:
            print(f"it {it:2d} loss {loss.item():.6f} grad_norm {total.item():.5f}", flush=True)
    dist.destroy_process_group()


main()
