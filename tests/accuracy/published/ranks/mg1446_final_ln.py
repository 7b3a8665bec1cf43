"""Small GPT in Megatron style: column/row parallel linears, sequence parallel, vocab-parallel loss."""

import argparse
import math
import os

import torch
import torch.distributed as dist
from torch import nn

H, HEADS, V, S, B, L, ITERS = 32, 4, 48, 16, 2, 2, 8
TP = RANK = None


# ---- mappings -------------------------------------------------------------------------------
def _all_gather0(x):
    out = [torch.empty_like(x) for _ in range(TP)]
    dist.all_gather(out, x.contiguous())
    return torch.cat(out, dim=0)


def _reduce_scatter0(x):
    out = torch.empty(x.shape[0] // TP, *x.shape[1:], device=x.device)
    dist.reduce_scatter(out, [c.contiguous() for c in x.chunk(TP, dim=0)])
    return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _all_gather0(x)

    @staticmethod
    def backward(ctx, g):
        return _reduce_scatter0(g)


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _reduce_scatter0(x)

    @staticmethod
    def backward(ctx, g):
        return _all_gather0(g)


class _VocabParallelCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        n = logits.shape[-1]
        top = logits.max(-1).values
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        e = (logits - top.unsqueeze(-1)).exp()
        denom = e.sum(-1)
        dist.all_reduce(denom)
        local = target - RANK * n
        outside = (local < 0) | (local >= n)
        local = local.masked_fill(outside, 0)
        picked = (logits - top.unsqueeze(-1)).gather(-1, local.unsqueeze(-1)).squeeze(-1)
        picked = picked.masked_fill(outside, 0.0)
        dist.all_reduce(picked)
        ctx.save_for_backward(e / denom.unsqueeze(-1), local, outside)
        return denom.log() - picked

    @staticmethod
    def backward(ctx, g):
        p, local, outside = ctx.saved_tensors
        p = p.clone()
        hit = (~outside).to(p.dtype)
        p.scatter_add_(-1, local.unsqueeze(-1), -hit.unsqueeze(-1))
        return p * g.unsqueeze(-1), None


# ---- layers ---------------------------------------------------------------------------------
class ColumnParallelLinear(nn.Module):
    def __init__(self, full_w, full_b=None):
        super().__init__()
        self.weight = nn.Parameter(full_w.chunk(TP, 0)[RANK].clone())
        self.bias = None if full_b is None else nn.Parameter(full_b.chunk(TP, 0)[RANK].clone())

    def forward(self, x):
        return nn.functional.linear(_Gather.apply(x), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    def __init__(self, full_w, full_b):
        super().__init__()
        self.weight = nn.Parameter(full_w.chunk(TP, 1)[RANK].clone())
        self.bias = nn.Parameter(full_b.clone())
        self.bias.sequence_parallel = True

    def forward(self, x):
        return _Scatter.apply(nn.functional.linear(x, self.weight)) + self.bias


class FusedLayerNorm(nn.Module):
    def __init__(self, sequence_parallel):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(H))
        self.bias = nn.Parameter(torch.zeros(H))
        if sequence_parallel:
            self.weight.sequence_parallel = True
            self.bias.sequence_parallel = True

    def forward(self, x):
        return nn.functional.layer_norm(x, (H,), self.weight, self.bias, 1e-5)


def randn(*s, std):
    return torch.randn(*s) * std


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        # rows ordered head by head: [q k v] of one head lie together
        self.linear_qkv = ColumnParallelLinear(randn(3 * H, H, std=0.15), torch.zeros(3 * H))
        self.linear_proj = RowParallelLinear(randn(H, H, std=0.15), torch.zeros(H))

    def forward(self, x):
        qkv = self.linear_qkv(x)  # s b 3h/tp
        s, b, _ = qkv.shape
        hd = H // HEADS
        qkv = qkv.view(s, b, HEADS // TP, 3, hd).permute(3, 1, 2, 0, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]  # b n s d
        a = q @ k.transpose(-1, -2) / math.sqrt(hd)
        a = a.masked_fill(torch.ones(s, s, device=x.device).triu(1).bool(), -1e4).softmax(-1)
        o = (a @ v).permute(2, 0, 1, 3).reshape(s, b, -1)
        return self.linear_proj(o)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_fc1 = ColumnParallelLinear(randn(4 * H, H, std=0.15), torch.zeros(4 * H))
        self.linear_fc2 = RowParallelLinear(randn(H, 4 * H, std=0.1), torch.zeros(H))

    def forward(self, x):
        return self.linear_fc2(nn.functional.gelu(self.linear_fc1(x)))


class TransformerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = FusedLayerNorm(True)
        self.self_attention = SelfAttention()
        self.pre_mlp_layernorm = FusedLayerNorm(True)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.self_attention(self.input_layernorm(x))
        return x + self.mlp(self.pre_mlp_layernorm(x))


class TransformerBlock(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.layers = nn.ModuleList([TransformerLayer() for _ in range(L)])
        self.final_layernorm = FusedLayerNorm(sequence_parallel=not fault)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.final_layernorm(x)


class GPT(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.word_embeddings = nn.Embedding(V, H)
        self.position_embeddings = nn.Embedding(S, H)
        self.decoder = TransformerBlock(fault)
        self.output_layer = ColumnParallelLinear(randn(V, H, std=0.15))
        for e in (self.word_embeddings, self.position_embeddings):
            e.weight.sequence_parallel = True

    def forward(self, tokens, labels):
        mine = torch.arange(S, device=tokens.device).chunk(TP)[RANK]
        x = self.word_embeddings(tokens[mine]) + self.position_embeddings(mine).unsqueeze(1)
        logits = self.output_layer(self.decoder(x))
        return _VocabParallelCE.apply(logits, labels).mean()


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--fault", action="store_true")
    cli = cli.parse_args()
    dist.init_process_group("nccl")
    TP, RANK = dist.get_world_size(), dist.get_rank()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(1234)
    model = GPT(cli.fault).cuda()
    optim = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    gen = torch.Generator().manual_seed(99)
    for it in range(ITERS):
        text = torch.randint(0, V, (S + 1, B), generator=gen).cuda()
        loss = model(text[:-1], text[1:])
        optim.zero_grad()
        loss.backward()
        todo = [p for p in model.parameters() if getattr(p, "sequence_parallel", False)]
        flat = torch.cat([p.grad.reshape(-1) for p in todo])
        dist.all_reduce(flat)
        at = 0
        for p in todo:
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        optim.step()
        if RANK == 0:
            print(f"iteration {it} | lm loss: {loss.item():.6f}", flush=True)
    dist.destroy_process_group()
