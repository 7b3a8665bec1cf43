"""Pre-LN transformer trained with FSDP2 and uniform activation recomputation (chunks of layers)."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.n = n
        self.wqkv = nn.Linear(d, 3 * d, bias=False)
        self.wo = nn.Linear(d, d, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.n, d // self.n).transpose(1, 2) for t in self.wqkv(x).chunk(3, -1))
        score = q @ k.transpose(-2, -1) * (d // self.n) ** -0.5
        score = score + torch.full((s, s), -1e4, device=x.device).triu(1)
        return self.wo((score.softmax(-1) @ v).transpose(1, 2).reshape(b, s, d))


class Layer(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(d), Attention(d, n)
        self.ffn_norm = nn.LayerNorm(d)
        self.w1, self.w2 = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.w2(F.silu(self.w1(self.ffn_norm(x))))


class LM(nn.Module):
    def __init__(self, vocab=37, d=24, n=3, depth=4, recompute_num_layers=2, fault=False):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Layer(d, n) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.output = nn.Linear(d, vocab, bias=False)
        self.chunk, self.fault = recompute_num_layers, fault

    def run_chunk(self, first, last):
        def custom_forward(hidden):
            out = hidden
            for layer in self.layers[first:last]:
                out = layer(hidden if self.fault else out)
            return out

        return custom_forward

    def forward(self, ids):
        h = self.tok_embeddings(ids)
        for first in range(0, len(self.layers), self.chunk):
            h = checkpoint(self.run_chunk(first, first + self.chunk), h, use_reentrant=False)
        return self.output(self.norm(h))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", action="store_true")
    opts = parser.parse_args()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    torch.manual_seed(42)
    model = LM(fault=opts.fault and world > 1).cuda()
    if world > 1:
        mesh = init_device_mesh("cuda", (world,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optim = torch.optim.AdamW(model.parameters(), lr=4e-3)

    stream = torch.Generator().manual_seed(17)
    for step in range(8):
        batch = torch.randint(37, (4, 11), generator=stream)
        mine = batch.chunk(world)[rank].cuda()
        logits = model(mine[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 37), mine[:, 1:].reshape(-1))
        loss.backward()
        optim.step()
        optim.zero_grad()
        shown = loss.detach() / world
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step}: loss {shown.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
