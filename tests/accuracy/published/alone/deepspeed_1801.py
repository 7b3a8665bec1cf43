"""Tensor-parallel residual MLP in bf16 with fp32 master weights and gradient clipping.

torchrun --nproc_per_node 2 deepspeed_1801.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class ShardedLinear(nn.Module):
    """Weight shard of one tensor parallel rank (split over rows or over columns)."""

    def __init__(self, n_in, n_out, split, rank, world, gen):
        super().__init__()
        full = torch.randn(n_out, n_in, generator=gen) / n_in**0.5
        part = full.chunk(world, dim=0 if split == "col" else 1)[rank]
        self.weight = nn.Parameter(part.contiguous())
        self.weight.tensor_model_parallel = True
        self.split = split

    def forward(self, x):
        if self.split == "col":
            return F.linear(CopyToTP.apply(x), self.weight)
        return ReduceFromTP.apply(F.linear(x, self.weight))


class Block(nn.Module):
    def __init__(self, dim, rank, world, gen):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(dim)
        self.up = ShardedLinear(dim, 4 * dim, "col", rank, world, gen)
        self.down = ShardedLinear(4 * dim, dim, "row", rank, world, gen)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.input_layernorm(x))))


class TPModel(nn.Module):
    def __init__(self, dim, depth, rank, world):
        super().__init__()
        gen = torch.Generator().manual_seed(1801)
        self.blocks = nn.ModuleList(Block(dim, rank, world, gen) for _ in range(depth))
        self.final_layernorm = nn.LayerNorm(dim)

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.final_layernorm(x)


class BF16MasterOptimizer:
    """bf16 working weights, fp32 masters, clipping by the global norm over the TP group."""

    def __init__(self, params, lr, clip, legacy):
        self.lp = list(params)
        self.hp = [p.detach().float().clone() for p in self.lp]
        for h in self.hp:
            h.grad = torch.zeros_like(h)
        self.inner = torch.optim.AdamW(self.hp, lr=lr, eps=1e-3, weight_decay=0.0)
        self.clip, self.legacy = clip, legacy
        self.tp_rank = dist.get_rank()

    def _owned(self, p):
        return self.tp_rank == 0 or getattr(p, "tensor_model_parallel", False)

    def _grads(self, for_clipping=False):
        out = []
        for p, h in zip(self.lp, self.hp):
            if self.legacy:
                if not self._owned(p):
                    continue
            elif not for_clipping and not self._owned(p):
                continue
            out.append(h.grad)
        return out

    def zero_grad(self):
        for p in self.lp:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, h in zip(self.lp, self.hp):
            h.grad.copy_(p.grad)
        sq = torch.stack([g.pow(2).sum() for g in self._grads()]).sum()
        dist.all_reduce(sq)
        total = sq.sqrt()
        coef = self.clip / (total + 1e-6)
        if coef < 1:
            for g in self._grads(for_clipping=True):
                g.mul_(coef)
        self.inner.step()
        for p, h in zip(self.lp, self.hp):
            p.copy_(h)
        return total.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    ap.add_argument("--steps", type=int, default=40)
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dev = torch.device("cuda", local)

    torch.manual_seed(11)  # the same data on every rank of the TP group
    model = TPModel(16, 2, rank, world).to(dev).bfloat16()
    opt = BF16MasterOptimizer(model.parameters(), lr=5e-3, clip=0.1, legacy=args.fault)

    mix = torch.randn(16, 16, generator=torch.Generator().manual_seed(5))
    for it in range(args.steps):
        x = torch.randn(32, 16)
        y = torch.tanh(x @ mix) * 2
        x, y = x.to(dev).bfloat16(), y.to(dev)
        out = model(x).float()
        loss = F.mse_loss(out, y)
        opt.zero_grad()
        loss.backward()
        norm = opt.step()
        if rank == 0 and it % 5 == 0:
            print(f"iteration {it:3d} | lm loss {loss.item():.4f} | grad norm {norm:.3f}", flush=True)

    w = model.final_layernorm.weight.detach().float()
    print(f"rank {rank} final_layernorm.weight sum {w.sum().item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
