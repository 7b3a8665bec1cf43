"""A mixture of experts (Shazeer et al. 2017): each token goes to two of four perceptrons."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32

VOCABULARY, CLASSES, WIDTH, EXPERTS, CHOSEN = 67, 7, 32, 4, 2


class Mixture(nn.Module):
    """(tokens, WIDTH) -> the same, and the auxiliary loss that keeps the experts equally busy.

    The router computes in float32 whatever autocast says (Fedus et al. 2021, section 2.4): with rounded scores a
    token would go to other experts on one device than on another."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            share = functional.softmax(self.router(at_least_float32(x)), dim=-1)
        weights, chosen = share.topk(CHOSEN, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            given = expert(x[rows]) * weights[rows, place].unsqueeze(-1)
            y = y.index_add(0, rows, given.to(y.dtype))
        busy = functional.one_hot(chosen, EXPERTS).to(share.dtype).mean(dim=(0, 1))
        return y, EXPERTS * (busy * share.mean(dim=0)).sum()


class Experts(nn.Module):
    """Tokens (N, T) -> logits (N, T, CLASSES); `balance` is the auxiliary loss of the last call."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.mixture = Mixture()
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        y, self.balance = self.mixture(self.norm(x).flatten(0, 1))
        return self.head(x + y.view_as(x))


def labelled_tokens(generator: torch.Generator) -> Batch:
    return (
        torch.randint(VOCABULARY, (4, 24), generator=generator),
        torch.randint(CLASSES, (4, 24), generator=generator),
    )


def balanced_loss(model: nn.Module, batch: Batch) -> Tensor:
    tokens, classes = batch
    logits = at_least_float32(model(tokens))
    return functional.cross_entropy(logits.flatten(0, 1), classes.flatten()) + 0.01 * model.balance


FAMILIES = (Family("experts", Experts, labelled_tokens, balanced_loss),)
