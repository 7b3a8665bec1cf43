"""Click prediction after DLRM (Naumov et al. 2019): bags of categories, dense features, their pairwise products."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32

DENSE, WIDTH, COUNT = 6, 12, 16  # features, size of an embedding, examples in a batch
TABLES = ((50, "sum"), (30, "mean"), (20, "max"))  # rows, and how a bag of them becomes one


def perceptron(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Recommender(nn.Module):
    """Dense features (N, DENSE), and for each table (categories, offsets of the N bags), -> logits (N,)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode=mode) for rows, mode in TABLES)
        self.bottom = perceptron(DENSE, 24, WIDTH)
        pairs = torch.tril_indices(len(TABLES) + 1, len(TABLES) + 1, offset=-1)
        self.register_buffer("pairs", pairs)
        self.top = perceptron(WIDTH + pairs.shape[1], 24, 1)

    def forward(self, dense: Tensor, *bags: Tensor) -> Tensor:
        x = self.bottom(dense)
        chosen = [table(bags[2 * i], bags[2 * i + 1]).to(x.dtype) for i, table in enumerate(self.tables)]
        features = torch.stack([x, *chosen], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1)).squeeze(1)


def clicks(generator: torch.Generator) -> Batch:
    """Bags of none to five categories."""
    bags = []
    for rows, _ in TABLES:
        sizes = torch.randint(6, (COUNT,), generator=generator)
        bags += [torch.randint(rows, (int(sizes.sum()),), generator=generator), sizes.cumsum(0) - sizes]
    clicked = torch.rand(COUNT, generator=generator).round()
    return torch.randn(COUNT, DENSE, generator=generator), *bags, clicked


def click_loss(model: nn.Module, batch: Batch) -> Tensor:
    *features, clicked = batch
    return functional.binary_cross_entropy_with_logits(at_least_float32(model(*features)), clicked)


FAMILIES = (Family("recommendation", Recommender, clicks, click_loss),)
