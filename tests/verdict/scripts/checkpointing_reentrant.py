"""A character model whose blocks are computed again in the backward pass (the re-entrant form), to save memory."""

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

SYLLABLES = ["ka", "lo", "mi", "ru", "sen", "ta", "vi", "o"]


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / math.sqrt(k.size(3))
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        attended = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.drop(self.out(attended))
        return x + self.drop(self.mlp(self.ln2(x)))


class CharModel(nn.Module):
    def __init__(self, size, block_size, width=32, layers=3, dropout=0.1):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.position = nn.Parameter(0.02 * torch.randn(block_size, width))
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, size)

    def forward(self, chars):
        x = self.embed(chars) + self.position[: chars.size(1)]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if self.training else block(x)
        return self.head(self.norm(x))


def corpus(words=1500):
    """Words of one to three syllables."""
    rng = np.random.default_rng(8)
    text = " ".join("".join(rng.choice(SYLLABLES, rng.integers(1, 4))) for _ in range(words))
    letters = sorted(set(text))
    return torch.tensor([letters.index(letter) for letter in text]), len(letters)


def get_batch(data, args, generator=None):
    starts = torch.randint(len(data) - args.block_size, (args.batch_size,), generator=generator)
    x = torch.stack([data[i : i + args.block_size] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + args.block_size] for i in starts])
    return x.cuda(), y.cuda()


@torch.no_grad()
def evaluate(model, data, args):
    model.eval()
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(6):
        x, y = get_batch(data, args, generator)
        losses.append(F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
    model.train()
    return sum(losses) / len(losses) / math.log(2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--anneal", type=int, default=30, help="the step from which the rate is a fifth")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(1337)

    data, size = corpus()
    split = int(0.9 * len(data))
    model = CharModel(size, args.block_size).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * (0.2 if step >= args.anneal else min(1.0, (step + 1) / 5))
        x, y = get_batch(data[:split], args)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}: train loss {loss.item():.4f}, bpc {evaluate(model, data[split:], args):.4f}")
        if step + 1 == args.steps:
            torch.save({"model": model.state_dict(), "step": step + 1, "config": vars(args)}, "char_model.pt")


if __name__ == "__main__":
    main()
