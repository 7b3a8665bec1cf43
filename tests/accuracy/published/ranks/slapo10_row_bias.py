"""A ready-made MLP is sharded after the fact: the sharded nn.Linear keeps its bias, a hook sums the output."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g


class FeedForward(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(d, 3 * d), nn.ELU(), nn.Linear(3 * d, d)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Autoencoder(nn.Module):
    def __init__(self, d=15):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(3)])
        self.ffs = nn.ModuleList([FeedForward(d) for _ in range(3)])
        self.readout = nn.Linear(d, d)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=0.25)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        for n, f in zip(self.norms, self.ffs):
            x = x + f(n(x))
        return self.readout(x)


class BiasOnce(nn.Module):
    """A linear whose partial products are summed before the bias is added."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x):
        return Sum.apply(nn.functional.linear(x, self.weight)) + self.bias


def shard(model, bias_inside):
    w, r = dist.get_world_size(), dist.get_rank()
    for ff in model.ffs:
        ff.fc1.weight = nn.Parameter(ff.fc1.weight.data.tensor_split(w, 0)[r].clone())
        ff.fc1.bias = nn.Parameter(ff.fc1.bias.data.tensor_split(w, 0)[r].clone())
        ff.fc1.register_forward_pre_hook(lambda m, a: (Spread.apply(a[0]),))
        piece = ff.fc2.weight.data.tensor_split(w, 1)[r].clone()
        if bias_inside:
            ff.fc2.weight = nn.Parameter(piece)
            ff.fc2.register_forward_hook(lambda m, a, out: Sum.apply(out))
        else:
            ff.fc2 = BiasOnce(piece, ff.fc2.bias.data.clone())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    a = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(13)
    ae = Autoencoder()
    if dist.get_world_size() > 1:
        shard(ae, bias_inside=a.fault)
    ae.cuda()
    opt = torch.optim.Adam(ae.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(21)
    for epoch in range(10):
        x = torch.rand(18, 15, generator=gen).cuda()
        loss = nn.functional.smooth_l1_loss(ae(x), x.flip(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.6f}", flush=True)
    dist.destroy_process_group()
