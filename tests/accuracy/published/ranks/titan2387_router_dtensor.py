"""MoE transformer parallelised with torch.distributed.tensor.parallel; the router stays replicated."""

import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

DIM, FFN, NEXP, VOCAB = 16, 32, 4, 33


class NoParallel(ParallelStyle):
    """Keep a module's parameters replicated as DTensors and hand out a plain tensor."""

    def __init__(self, grad_partial):
        super().__init__()
        self.grad_placements = (Partial(),) if grad_partial else None

    def _apply(self, module, mesh):
        def inputs(mod, args, mesh):
            return (DTensor.from_local(args[0], mesh, (Replicate(),), run_check=False), *args[1:])

        def outputs(mod, out, mesh):
            return out.to_local(grad_placements=self.grad_placements)

        return distribute_module(module, mesh, None, inputs, outputs)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(DIM, FFN), nn.Linear(FFN, DIM)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class GroupedExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(NEXP, DIM, FFN) * 0.3)
        self.w2 = nn.Parameter(torch.randn(NEXP, FFN, DIM) * 0.25)

    def forward(self, x, scores):
        w1 = self.w1.to_local() if isinstance(self.w1, DTensor) else self.w1
        w2 = self.w2.to_local() if isinstance(self.w2, DTensor) else self.w2
        h = F.relu(torch.einsum("td,edf->etf", x, w1))
        return torch.einsum("etf,efd,te->td", h, w2, scores)


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, NEXP, bias=False)
        self.experts = GroupedExperts()

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        scores = F.softmax(self.gate(flat), dim=-1)
        out = self.experts(CopyToRanks.apply(flat), scores)
        return SumOverRanks.apply(out).view_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.feed_forward = nn.LayerNorm(DIM), FeedForward()
        self.norm2, self.moe = nn.LayerNorm(DIM), MoE()

    def forward(self, x):
        x = x + self.feed_forward(self.norm1(x))
        return x + self.moe(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Block() for _ in range(2)])
        self.output = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def shard_experts(name, module, mesh, *_):
    for pname, dim in (("w1", 2), ("w2", 1)):
        full = getattr(module, pname)
        setattr(module, pname, nn.Parameter(distribute_tensor(full.data, mesh, [Shard(dim)])))


def parallelize(model, mesh, fault):
    for layer in model.layers:
        parallelize_module(
            layer,
            mesh,
            {
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(),
                "moe.gate": NoParallel(grad_partial=not fault),
            },
        )
        shard_experts("experts", layer.moe.experts, mesh)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    args = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(90)
    model = Model().cuda()
    if dist.get_world_size() > 1:
        parallelize(model, init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",)), args.fault)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    g = torch.Generator().manual_seed(4)
    for step in range(8):
        ids = torch.randint(VOCAB, (4, 9), generator=g).cuda()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        for p in model.parameters():  # a pending sum would otherwise reach the optimizer
            if isinstance(p.grad, DTensor) and any(q.is_partial() for q in p.grad.placements):
                p.grad = p.grad.redistribute(placements=p.placements)
        opt.step()
        opt.zero_grad()
        if dist.get_rank() == 0:
            print(f"step: {step}  loss: {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
