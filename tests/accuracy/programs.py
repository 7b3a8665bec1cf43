"""Small trainings that call what models are made of: one of text, one of images."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class Layer(nn.Module):
    """Attention written out, with a mask, and a feed-forward part."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)
        self.act = nn.GELU()

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        count, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (scale / math.sqrt(width // self.heads))
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(hidden, -1e4).softmax(-1) @ v
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(count, length, width)))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class Text(nn.Module):
    """Tokens to tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(40, 32)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(32, 40)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Image(nn.Module):
    """Pictures to classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.conv2, self.act = nn.Conv2d(8, 16, 3, padding=1), nn.SiLU()
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.norm1(self.conv1(x)).relu())
        x = self.act(self.conv2(x)).mean((2, 3))
        return self.head(self.drop(x))


MODELS = {"text": Text, "image": Image}


def batch(model: str, step: int) -> tuple[Tensor, Tensor]:
    """The same on every machine."""
    draw = torch.Generator().manual_seed(100 + step)
    if model == "text":
        words = torch.randint(0, 40, (4, 11), generator=draw)
        return words[:, :-1], words[:, 1:]
    return torch.randn(4, 3, 16, 16, generator=draw), torch.randint(0, 5, (4,), generator=draw)


def loss_of(model: nn.Module, given: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropy."""
    return functional.cross_entropy(model(given).flatten(0, -2), wanted.flatten())
