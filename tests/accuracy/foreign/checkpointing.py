"""Transformer encoder classifier with activation checkpointing, autocast and a gradient scaler."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
amp_dtype = torch.float16 if device == "cuda" else torch.bfloat16


class Block(nn.Module):
    def __init__(self, dim, heads, dropout=0.1):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, vocab=200, dim=64, depth=4, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.blocks = nn.ModuleList(Block(dim, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, ids):
        keep, x = ids != 0, self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, keep[:, None, None, :], use_reentrant=False)
        x = self.norm(x) * keep.unsqueeze(-1)
        return self.head(x.sum(1) / keep.sum(1, keepdim=True))


g = torch.Generator().manual_seed(0)
labels = torch.randint(0, 5, (40,), generator=g)
ids = torch.randint(1, 80, (40, 32), generator=g) + 30 * labels[:, None]
lengths = torch.randint(8, 33, (40, 1), generator=g)
ids = ids.masked_fill(torch.arange(32)[None] >= lengths, 0)

model = Encoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
for step in range(5):
    x, y = ids.split(8)[step].to(device), labels.split(8)[step].to(device)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device_type=device, dtype=amp_dtype):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.6f}")
