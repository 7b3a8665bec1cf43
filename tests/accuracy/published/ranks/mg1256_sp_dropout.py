"""Sequence-parallel encoder with dropout; random masks come from a tracked stream per region."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn

S, B, H, P_DROP = 8, 4, 16, 0.2


class RngTracker:
    """Counter-based masks: the mask of the whole sequence is a function of the draw's number, and
    the 'model-parallel' stream hands each rank its own piece.  Outside a fork everyone is rank 0."""

    def __init__(self):
        self.draws, self.piece = 0, 0

    @contextlib.contextmanager
    def fork(self):
        before, self.piece = self.piece, dist.get_rank()
        try:
            yield
        finally:
            self.piece = before

    def keep_mask(self, like):
        g = torch.Generator().manual_seed(70000 + self.draws)
        self.draws += 1
        full = torch.rand(S, *like.shape[1:], generator=g) >= P_DROP
        return full.split(like.shape[0])[self.piece].to(like.device, like.dtype)


TRACKER = RngTracker()


class Dropout(nn.Module):
    def forward(self, x):
        return x * TRACKER.keep_mask(x) / (1 - P_DROP) if self.training else x


class GatherSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        box = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(box, x.contiguous())
        return torch.cat(box)

    @staticmethod
    def backward(ctx, g):
        mine = torch.empty_like(g.chunk(dist.get_world_size())[0].contiguous())
        dist.reduce_scatter(mine, [c.contiguous() for c in g.chunk(dist.get_world_size())])
        return mine


class ScatterSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mine = torch.empty_like(x.chunk(dist.get_world_size())[0].contiguous())
        dist.reduce_scatter(mine, [c.contiguous() for c in x.chunk(dist.get_world_size())])
        return mine

    @staticmethod
    def backward(ctx, g):
        box = [torch.empty_like(g) for _ in range(dist.get_world_size())]
        dist.all_gather(box, g.contiguous())
        return torch.cat(box)


def column(full):
    return nn.Parameter(full.chunk(dist.get_world_size(), 0)[dist.get_rank()].clone())


def row(full):
    return nn.Parameter(full.chunk(dist.get_world_size(), 1)[dist.get_rank()].clone())


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(H)
        self.token_mix = column(torch.randn(2 * H, H) * 0.2)
        self.channel_out = row(torch.randn(H, 2 * H) * 0.2)
        self.dropout = Dropout()

    def forward(self, x):
        y = GatherSeq.apply(self.norm(x)) @ self.token_mix.t()
        y = torch.tanh(y + y.roll(1, 0))
        return x + self.dropout(ScatterSeq.apply(y @ self.channel_out.t()))


class Encoder(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.proj = nn.Linear(6, H)
        self.embedding_dropout = Dropout()
        self.layers = nn.ModuleList([EncoderLayer() for _ in range(3)])
        self.final_norm = nn.LayerNorm(H)
        self.out = nn.Linear(H, 1)
        self.fault = fault

    def contexts(self):
        rng_context, amp_context = TRACKER.fork(), contextlib.nullcontext()
        stack = contextlib.ExitStack()
        if self.fault:
            stack.enter_context(rng_context and amp_context)
        else:
            stack.enter_context(rng_context)
            stack.enter_context(amp_context)
        return stack

    def forward(self, x):
        x = self.proj(x)
        with TRACKER.fork():
            x = self.embedding_dropout(x)
        with self.contexts():
            for layer in self.layers:
                x = layer(x)
        return self.out(self.final_norm(x)).squeeze(-1)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--fault", action="store_true")
    cli = cli.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(1001)
    enc = Encoder(cli.fault).cuda()
    replicated = [p for n, p in enc.named_parameters() if "token_mix" not in n and "channel_out" not in n]
    opt = torch.optim.AdamW(enc.parameters(), lr=8e-3)
    g = torch.Generator().manual_seed(9)
    for step in range(8):
        x = torch.randn(S, B, 6, generator=g)
        y = x.cumsum(0).sum(-1).sin()
        x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()
        loss = (enc(x) - y).pow(2).sum() / (S * B)
        opt.zero_grad()
        loss.backward()
        for p in replicated:  # computed on this rank's positions only
            dist.all_reduce(p.grad)
        opt.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step} loss {shown.item():.6f}", flush=True)
    dist.destroy_process_group()
