"""A character transformer trained in bf16 autocast, with warm-up and clipping."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TEXT = (
    "the sea was calm and the boat went out at dawn; by noon the wind had come, and with it the rain. "
    "nobody on the pier could see the light, but everybody heard the bell. "
) * 8


class Characters(Dataset):
    def __init__(self, block):
        letters = sorted(set(TEXT))
        self.size = len(letters)
        self.block = block
        self.codes = torch.tensor([letters.index(letter) for letter in TEXT])

    def __len__(self):
        return (len(self.codes) - self.block - 1) // 3

    def __getitem__(self, index):
        start = 3 * index
        return self.codes[start : start + self.block], self.codes[start + 1 : start + self.block + 1]


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        y = self.dropout(scores.softmax(dim=-1)) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.dropout(self.attend(self.ln1(x)))
        return x + self.dropout(self.mlp(self.ln2(x)))


class Transformer(nn.Module):
    def __init__(self, size, block, width=32, heads=4, layers=2, dropout=0.1):
        super().__init__()
        self.token = nn.Embedding(size, width)
        self.position = nn.Parameter(0.02 * torch.randn(block, width))
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, size)

    def forward(self, codes):
        x = self.token(codes) + self.position[: codes.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--block", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(5)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    data = Characters(args.block)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True, pin_memory=True)
    model = Transformer(data.size, args.block).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 8))

    for epoch in range(args.epochs):
        total = 0.0
        for codes, target in loader:
            codes, target = codes.to(device, non_blocking=True), target.to(device, non_blocking=True)
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                logits = model(codes)
                loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
