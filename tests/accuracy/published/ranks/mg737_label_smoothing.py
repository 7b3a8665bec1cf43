"""Vocabulary-parallel cross entropy with label smoothing."""

import argparse
import os
import torch
import torch.distributed as dist
import torch.nn as nn

SMOOTH = 0.15


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, local_statistics):
        part = logits.shape[-1]
        low = dist.get_rank() * part
        peak = logits.amax(-1)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        z = logits - peak[..., None]
        sums = torch.stack([z.exp().sum(-1), z.sum(-1)])
        local_sum = sums[1].clone()
        dist.all_reduce(sums)
        log_z = sums[0].log()
        inside = (target >= low) & (target < low + part)
        index = (target - low).clamp(0, part - 1)
        hit = z.gather(-1, index[..., None])[..., 0] * inside.to(z.dtype)
        dist.all_reduce(hit)
        nll = log_z - hit
        if local_statistics:
            size, mean_logp = part, local_sum / part - log_z
        else:
            size = part * dist.get_world_size()
            mean_logp = sums[1] / size - log_z
        eps = SMOOTH * size / (size - 1)
        ctx.size, ctx.eps = size, eps
        ctx.save_for_backward((z - log_z[..., None]).exp(), index, inside)
        return (1 - eps) * nll - eps * mean_logp

    @staticmethod
    def backward(ctx, g):
        prob, index, inside = ctx.saved_tensors
        grad = prob - ctx.eps / ctx.size
        one = (1 - ctx.eps) * inside.to(prob.dtype)
        grad.scatter_add_(-1, index[..., None], -one[..., None])
        return grad * g[..., None], None, None


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class ParallelMLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        w, r = dist.get_world_size(), dist.get_rank()
        up, down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.norm = nn.LayerNorm(d)
        self.up_weight = nn.Parameter(up.weight.data.chunk(w)[r].clone())
        self.up_bias = nn.Parameter(up.bias.data.chunk(w)[r].clone())
        self.down_weight = nn.Parameter(down.weight.data.chunk(w, 1)[r].clone())
        self.down_bias = nn.Parameter(down.bias.data.clone())

    def forward(self, x):
        h = nn.functional.linear(Copy.apply(self.norm(x)), self.up_weight, self.up_bias)
        return x + Reduce.apply(nn.functional.linear(nn.functional.gelu(h), self.down_weight)) + self.down_bias


class Tagger(nn.Module):
    def __init__(self, vocab=26, d=18, context=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.join = nn.Linear(context * d, d)
        self.blocks = nn.ModuleList([ParallelMLP(d) for _ in range(2)])
        full = torch.randn(vocab, d) * 0.25
        self.unembed = nn.Parameter(full.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, ctx_ids):
        x = self.join(self.embed(ctx_ids).flatten(1))
        for b in self.blocks:
            x = b(x)
        return Copy.apply(x) @ self.unembed.t()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    fault = ap.parse_args().fault
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(19)
    model = Tagger().cuda()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    gen = torch.Generator().manual_seed(33)
    for step in range(10):
        win = torch.randint(26, (20, 4), generator=gen).cuda()
        losses = VocabParallelCrossEntropy.apply(model(win[:, :3]), win[:, 3], fault and dist.get_world_size() > 1)
        loss = losses.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0:
            print(f"step={step} smoothed_ce={loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
