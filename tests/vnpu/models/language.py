"""Transformers over tokens: a BERT encoder, a GPT with attention in two forms, nn.TransformerEncoder.

GELU has its default form everywhere: torch_npu 2.13 calls the same operator whatever `approximate` says, so that the
tanh form, GPT-2's own, would differ from the CPU by up to 4e-4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32

VOCABULARY = 101
PADDING = 0
IGNORED = -100  # what cross_entropy skips


class Attention(nn.Module):
    """Multi-head self-attention. `fused`: through scaled_dot_product_attention, else written out."""

    def __init__(self, width: int, heads: int, causal: bool, fused: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.fused = heads, causal, fused
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        count, length, width = x.shape
        q, k, v = (
            part.view(count, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).split(width, dim=2)
        )
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v, bias, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
            if self.causal:
                visible = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
                scores = scores.masked_fill(~visible, float("-inf"))
            if bias is not None:
                scores = scores + bias
            y = scores.softmax(dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(count, length, width))


class Bert(nn.Module):
    """Token, position and segment embeddings, post-norm layers, a masked-token head tied to the embedding."""

    def __init__(self, width: int = 64, layers: int = 3, heads: int = 4, length: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, padding_idx=PADDING)
        self.positions = nn.Embedding(length, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "attention": Attention(width, heads, causal=False, fused=False),
                    "norm1": nn.LayerNorm(width, eps=1e-12),
                    "feed": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                    "norm2": nn.LayerNorm(width, eps=1e-12),
                }
            )
            for _ in range(layers)
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        position = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self.norm(self.tokens(tokens) + self.positions(position) + self.segments(segments))
        hidden = (tokens == PADDING)[:, None, None, :].to(x.dtype)
        bias = hidden * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer["norm1"](x + layer["attention"](x, bias))
            x = layer["norm2"](x + layer["feed"](x))
        return functional.linear(self.head(x), self.tokens.weight, self.bias)


class Gpt(nn.Module):
    """GPT-2's shape: learned positions, pre-norm blocks, output tied to the embedding."""

    def __init__(
        self,
        fused: bool,
        width: int = 64,
        layers: int = 3,
        heads: int = 4,
        length: int = 32,
        vocabulary: int = VOCABULARY,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "attention": Attention(width, heads, causal=True, fused=fused),
                    "norm2": nn.LayerNorm(width),
                    "feed": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.05)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = x + block["attention"](block["norm1"](x))
            x = x + block["feed"](block["norm2"](x))
        return functional.linear(self.norm(x), self.tokens.weight)


class Encoder(nn.Module):
    """nn.TransformerEncoder with a key padding mask, regressing one value per position."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.head(self.encoder(x, src_key_padding_mask=padding)).squeeze(-1)


def masked_tokens(generator: torch.Generator) -> Batch:
    tokens = torch.randint(1, VOCABULARY, (4, 32), generator=generator)
    for row, length in enumerate((32, 20, 27, 9)):
        tokens[row, length:] = PADDING
    segments = (torch.arange(32) >= 12).long().expand(4, 32).contiguous()
    chosen = (torch.rand(4, 32, generator=generator) < 0.3) & (tokens != PADDING)
    return tokens, segments, tokens.masked_fill(~chosen, IGNORED)


def next_tokens(count: int = 4, length: int = 32, vocabulary: int = VOCABULARY) -> Callable[[torch.Generator], Batch]:
    def batch(generator: torch.Generator) -> Batch:
        text = torch.randint(vocabulary, (count, length + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    return batch


def padded_sequences(generator: torch.Generator) -> Batch:
    padding = torch.arange(16).unsqueeze(0) >= torch.tensor([16, 9, 12, 4]).unsqueeze(1)
    return torch.randn(4, 16, 32, generator=generator), padding, torch.randn(4, 16, generator=generator)


def squared_error_inside(model: nn.Module, batch: Batch) -> Tensor:
    x, padding, target = batch
    return functional.mse_loss(
        at_least_float32(model(x, padding)).masked_fill(padding, 0), target.masked_fill(padding, 0)
    )


FAMILIES = (
    Family("bert", Bert, masked_tokens, steps=20),
    Family("gpt.written_out", lambda: Gpt(fused=False), next_tokens(), steps=20),
    Family("gpt.fused", lambda: Gpt(fused=True), next_tokens(), steps=20),
    Family("transformer_encoder", Encoder, padded_sequences, squared_error_inside),
)
