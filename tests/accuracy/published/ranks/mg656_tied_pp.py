"""Two pipeline stages, GPipe schedule, input and output embedding tied across the stages."""

import argparse
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, LEN, MICRO, NMICRO, LAYERS = 45, 20, 8, 2, 4, 4


class ParallelBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.dense = nn.Linear(DIM, DIM)
        self.h_to_4h = nn.Linear(DIM, 4 * DIM)
        self.four_h_to_h = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        n = self.ln(x)
        q, k, v = self.qkv(n).chunk(3, -1)
        att = (q @ k.transpose(1, 2)) / DIM**0.5
        att = att.masked_fill(torch.ones(LEN, LEN, device=x.device).triu(1) > 0, -1e4)
        return x + self.dense(att.softmax(-1) @ v) + self.four_h_to_h(F.gelu(self.h_to_4h(n)))


class Stage(nn.Module):
    def __init__(self, embedding, blocks, first, last):
        super().__init__()
        self.first, self.last = first, last
        if first or last:
            self.word_embeddings = nn.Embedding.from_pretrained(embedding.clone(), freeze=False)
        self.layers = nn.ModuleDict(blocks)
        if last:
            self.final_norm = nn.LayerNorm(DIM)

    def forward(self, x):
        if self.first:
            x = self.word_embeddings(x)
        for layer in self.layers.values():
            x = layer(x)
        return self.final_norm(x) @ self.word_embeddings.weight.t() if self.last else x


def build(rank, size):
    torch.manual_seed(808)
    embedding = torch.randn(VOCAB, DIM) * 0.4
    blocks = {str(i): ParallelBlock() for i in range(LAYERS)}
    per = LAYERS // size
    own = {k: b for k, b in blocks.items() if int(k) // per == rank}
    return Stage(embedding, own, rank == 0, rank == size - 1).cuda()


def train_step(stage, rank, size, batch):
    ids, labels = batch
    outs, ins, losses = [], [], []
    for m in range(NMICRO):
        if rank == 0:
            x = ids[m]
        else:
            x = torch.empty(MICRO, LEN, DIM, device="cuda")
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = stage(x)
        if rank == size - 1:
            y = F.cross_entropy(y.reshape(-1, VOCAB), labels[m].reshape(-1)) / NMICRO
            losses.append(y.detach())
        else:
            dist.send(y.detach().contiguous(), rank + 1)
        ins.append(x)
        outs.append(y)
    for m in range(NMICRO):
        if rank == size - 1:
            outs[m].backward()
        else:
            g = torch.empty_like(outs[m])
            dist.recv(g, rank + 1)
            outs[m].backward(g)
        if rank > 0:
            dist.send(ins[m].grad, rank - 1)
    return torch.stack(losses).sum() if losses else torch.zeros((), device="cuda")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fault", action="store_true")
    a = ap.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = build(rank, size)
    opt = torch.optim.AdamW(stage.parameters(), lr=4e-3, weight_decay=0.0)
    g = torch.Generator().manual_seed(77)
    for step in range(8):
        text = torch.randint(VOCAB, (NMICRO, MICRO, LEN + 1), generator=g).cuda()
        opt.zero_grad()
        loss = train_step(stage, rank, size, (text[..., :-1], text[..., 1:]))
        if size > 1 and not a.fault:
            dist.all_reduce(stage.word_embeddings.weight.grad)  # keep both copies alike
        opt.step()
        dist.broadcast(loss, size - 1)
        if rank == 0:
            print(f"batch {step}  loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
