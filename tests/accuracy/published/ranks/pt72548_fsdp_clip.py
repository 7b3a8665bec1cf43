"""FSDP2 training of a convolutional text classifier with gradient clipping by hand."""

import argparse
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class ConvBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.norm = nn.GroupNorm(2, ch)
        self.mix = nn.Linear(5 * ch, ch)

    def forward(self, x):  # b c t ; window of five written as a linear
        y = nn.functional.pad(torch.relu(self.norm(x)), (2, 2))
        t = x.shape[-1]
        win = torch.cat([y[..., i : i + t] for i in range(5)], 1)
        return x + self.mix(win.transpose(1, 2)).transpose(1, 2)


class Classifier(nn.Module):
    def __init__(self, vocab=50, ch=12, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, ch)
        self.blocks = nn.Sequential(*[ConvBlock(ch) for _ in range(3)])
        self.out = nn.Linear(ch, classes)

    def forward(self, ids):
        return self.out(self.blocks(self.embed(ids).transpose(1, 2)).mean(-1))


@torch.no_grad()
def clip_gradients(parameters, max_norm, across_ranks):
    grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in parameters if p.grad is not None]
    square = torch.stack([g.float().pow(2).sum() for g in grads]).sum()
    if across_ranks:
        dist.all_reduce(square)
    norm = square.sqrt()
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in grads:
        g.mul_(factor)
    return norm


def run(fault):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    net = Classifier().cuda()
    if world > 1:
        for b in net.blocks:
            fully_shard(b)
        fully_shard(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.3)
    src = torch.Generator().manual_seed(31)
    for step in range(10):
        ids = torch.randint(0, 50, (12, 10), generator=src)
        lab = ids.sum(1) % 5
        ids, lab = (t.tensor_split(world)[rank].cuda() for t in (ids, lab))
        loss = nn.functional.cross_entropy(net(ids), lab)
        opt.zero_grad()
        loss.backward()
        norm = clip_gradients(net.parameters(), 0.25, across_ranks=not (fault and world > 1))
        opt.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print("step", step, "loss", f"{mean.item() / world:.6f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    o = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    run(o.fault)
    dist.destroy_process_group()
