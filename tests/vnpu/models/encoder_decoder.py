"""T5 (Raffel et al. 2020): an encoder and a decoder with relative position biases, RMS norms and no other biases."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32

VOCABULARY, PADDING, START = 101, 0, 1
BUCKETS, FARTHEST = 16, 32  # of distances between positions


class RMSNorm(nn.Module):
    """Written out, as T5 has it: the mean of squares in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        variance = at_least_float32(x).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


def bucket(distance: Tensor, both_ways: bool) -> Tensor:
    """The bucket of a key's distance from its query: one each for near ones, logarithmic ranges up to FARTHEST.
    `both_ways`: half of the buckets are for keys that come later."""
    buckets, start = BUCKETS, torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        start = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    near = buckets // 2
    share = torch.log(distance.clamp(min=1).float() / near) / math.log(FARTHEST / near)
    far = (near + (share * (buckets - near)).long()).clamp(max=buckets - 1)
    return start + torch.where(distance < near, distance, far)


class PositionBias(nn.Module):
    def __init__(self, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.both_ways = both_ways
        self.table = nn.Embedding(BUCKETS, heads)

    def forward(self, length: int) -> Tensor:
        """(heads, length, length)"""
        positions = torch.arange(length, device=self.table.weight.device)
        return self.table(bucket(positions[None, :] - positions[:, None], self.both_ways)).permute(2, 0, 1)


class Attention(nn.Module):
    """Without scaling: T5's initialisation has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        nn.init.normal_(self.q.weight, std=1 / (width * math.sqrt(width // heads)) ** 0.5)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = q @ k.transpose(-2, -1) + bias
        weights = at_least_float32(scores).softmax(dim=-1).type_as(scores)
        return self.o((weights @ v).transpose(1, 2).flatten(-2))


class GatedFeed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.gate(x)) * self.up(x))


class Stack(nn.Module):
    """Encoder, or decoder if it is given a memory; both share the bias of the first layer."""

    def __init__(self, width: int, heads: int, layers: int, decoder: bool) -> None:
        super().__init__()
        self.bias = PositionBias(heads, both_ways=not decoder)
        kinds = ("own", "cross", "feed") if decoder else ("own", "feed")
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    kind: nn.ModuleDict(
                        {
                            "norm": RMSNorm(width),
                            "block": GatedFeed(width) if kind == "feed" else Attention(width, heads),
                        }
                    )
                    for kind in kinds
                }
            )
            for _ in range(layers)
        )
        self.norm = RMSNorm(width)

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        bias = self.bias(x.shape[1]) + mask
        for layer in self.layers:
            for kind, part in layer.items():
                y = part["norm"](x)
                if kind == "own":
                    x = x + part["block"](y, y, bias)
                elif kind == "cross":
                    x = x + part["block"](y, memory, memory_mask)
                else:
                    x = x + part["block"](y)
        return self.norm(x)


class T5(nn.Module):
    """(tokens, target shifted right) -> logits of the target's tokens; the embedding is shared by all three."""

    def __init__(self, width: int = 48, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.encoder = Stack(width, heads, layers, decoder=False)
        self.decoder = Stack(width, heads, layers, decoder=True)

    def forward(self, source: Tensor, shifted: Tensor) -> Tensor:
        def hidden(where: Tensor) -> Tensor:
            return where.to(self.tokens.weight.dtype) * torch.finfo(self.tokens.weight.dtype).min

        padding = hidden((source == PADDING)[:, None, None, :])
        length = shifted.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=shifted.device).triu(1)
        memory = self.encoder(self.tokens(source), padding)
        x = self.decoder(self.tokens(shifted), hidden(later), memory, padding)
        return functional.linear(x * self.width**-0.5, self.tokens.weight)


def sentence_pairs(generator: torch.Generator) -> Batch:
    source = torch.randint(2, VOCABULARY, (4, 24), generator=generator)
    for row, length in enumerate((24, 17, 20, 9)):
        source[row, length:] = PADDING
    target = torch.randint(2, VOCABULARY, (4, 16), generator=generator)
    shifted = torch.cat([torch.full((4, 1), START), target[:, :-1]], dim=1)
    return source, shifted, target


FAMILIES = (Family("t5", T5, sentence_pairs),)
