"""Byte-level tagger with a vocabulary-parallel embedding and tensor-parallel feed-forward."""

import argparse
import os
import torch
import torch.distributed as dist
from torch import nn

VOCAB, DIM, TAGS, BATCH, LENGTH, STEPS = 64, 16, 5, 3, 8, 11


def world():
    return dist.get_world_size()


class SumTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        t = t.clone()
        dist.all_reduce(t)
        return t

    @staticmethod
    def backward(ctx, g):
        return g


class EnterTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class ParallelEmbedding(nn.Module):
    def __init__(self, full, mask_from_shifted):
        super().__init__()
        part = full.shape[0] // world()
        self.start, self.stop = part * dist.get_rank(), part * (dist.get_rank() + 1)
        self.weight = nn.Parameter(full[self.start : self.stop].clone())
        self.mask_from_shifted = mask_from_shifted

    def forward(self, ids):
        if world() == 1:
            return nn.functional.embedding(ids, self.weight)
        foreign = (ids < self.start) | (ids >= self.stop)
        local = (ids - self.start).masked_fill(foreign, 0)
        if self.mask_from_shifted:
            foreign = local == 0  # zero stands for "not mine" ... and for self.start
        out = nn.functional.embedding(local, self.weight).masked_fill(foreign.unsqueeze(-1), 0.0)
        return SumTP.apply(out)


class ParallelFeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        r = dist.get_rank()
        a, b = torch.randn(3 * DIM, DIM) * 0.25, torch.randn(DIM, 3 * DIM) * 0.15
        self.norm = nn.LayerNorm(DIM)
        self.w_in = nn.Parameter(a.chunk(world(), 0)[r].clone())
        self.w_out = nn.Parameter(b.chunk(world(), 1)[r].clone())

    def forward(self, x):
        y = EnterTP.apply(self.norm(x)) @ self.w_in.t()
        return x + SumTP.apply(nn.functional.silu(y) @ self.w_out.t())


class Tagger(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.embed = ParallelEmbedding(torch.randn(VOCAB, DIM) * 0.5, fault)
        self.ffn = nn.ModuleList([ParallelFeedForward(), ParallelFeedForward()])
        self.context = nn.Linear(2 * DIM, DIM)
        self.classify = nn.Linear(DIM, TAGS)

    def forward(self, ids):
        x = self.embed(ids)
        x = torch.relu(self.context(torch.cat([x, x.roll(1, 1)], -1)))
        for f in self.ffn:
            x = f(x)
        return self.classify(x)


def corpus():
    """Ordinary bytes; the two rare ones (0 and 32) turn up from the fourth batch on."""
    g = torch.Generator().manual_seed(64)
    ids = torch.randint(0, VOCAB, (STEPS, BATCH, LENGTH), generator=g)
    ids[:3][ids[:3] == 0] = 5
    ids[:3][ids[:3] == VOCAB // 2] = 40
    ids[3, 1, 2], ids[3, 0, 6], ids[6, 2, 3] = VOCAB // 2, 0, VOCAB // 2
    return ids, (ids * 7 + ids.roll(1, 2)) % TAGS


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    a = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(256)
    net = Tagger(a.fault).cuda()
    opt = torch.optim.SGD(net.parameters(), lr=0.25, momentum=0.5)
    for step, (ids, tags) in enumerate(zip(*corpus())):
        loss = nn.functional.cross_entropy(net(ids.cuda()).flatten(0, 1), tags.cuda().flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0:
            print(f"{step:2d} | {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
