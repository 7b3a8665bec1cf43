"""Decoder replicated on all ranks, output head split over the vocabulary (tensor parallel)."""

import argparse
import os
import torch
import torch.distributed as dist
import torch.nn as nn

FAULT = False


def reduce_(t):
    """Sum over the tensor-parallel ranks."""
    if dist.get_world_size() == 1:
        return t
    if FAULT:
        dist.all_reduce(t.contiguous())
        return t
    t = t.contiguous()
    dist.all_reduce(t)
    return t


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t.view_as(t)

    @staticmethod
    def backward(ctx, g):
        return reduce_(g)


class GatherVocab(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        got = [torch.empty_like(t) for _ in range(dist.get_world_size())]
        dist.all_gather(got, t.contiguous())
        return torch.cat(got, -1)

    @staticmethod
    def backward(ctx, g):
        return g.chunk(dist.get_world_size(), -1)[dist.get_rank()].contiguous()


class LMHead(nn.Module):
    def __init__(self, full):
        super().__init__()
        self.weight = nn.Parameter(full.chunk(dist.get_world_size(), 0)[dist.get_rank()].clone())

    def forward(self, hidden):  # hidden: s b h  -> logits: b s v
        hidden = CopyToTP.apply(hidden).transpose(0, 1)
        return GatherVocab.apply(hidden @ self.weight.t())


class Recurrent(nn.Module):
    """Gated linear recurrence along the sequence."""

    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.in_proj = nn.Linear(d, 2 * d)
        self.out_proj = nn.Linear(d, d)

    def forward(self, x):
        gate, value = self.in_proj(self.norm(x)).chunk(2, -1)
        gate = gate.sigmoid()
        state, seq = torch.zeros_like(value[0]), []
        for g, v in zip(gate, value):
            state = g * state + (1 - g) * v
            seq.append(state)
        return x + self.out_proj(torch.stack(seq))


class HybridLM(nn.Module):
    def __init__(self, v=32, d=16):
        super().__init__()
        self.embedding = nn.Embedding(v, d)
        self.layers = nn.ModuleList([Recurrent(d), Recurrent(d)])
        self.final_norm = nn.LayerNorm(d)
        self.output_layer = LMHead(torch.randn(v, d) * 0.3)

    def forward(self, ids):
        x = self.embedding(ids.t())
        for layer in self.layers:
            x = layer(x)
        return self.output_layer(self.final_norm(x))


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--fault", action="store_true")
    FAULT = cli.parse_args().fault
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(31337)
    lm = HybridLM().cuda()
    opt = torch.optim.RMSprop(lm.parameters(), lr=2e-3)
    data = torch.randint(32, (9, 3, 8), generator=torch.Generator().manual_seed(2)).cuda()
    for n, ids in enumerate(data):
        logp = lm(ids[:, :-1]).log_softmax(-1)
        loss = -logp.gather(-1, ids[:, 1:].unsqueeze(-1)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0:
            print(f"{n}: nll {loss.item():.6f}", flush=True)
    dist.destroy_process_group()
