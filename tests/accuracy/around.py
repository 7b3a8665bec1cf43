"""Faults around operators: each operator computes what it is given, and the training is another all the same.

Each is a name, a program, the class that a comparison has to name, and what is done: to the model before it trains, to a
batch, to the optimizer, or to the loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def _same(one: Any) -> Any:
    return one


@dataclasses.dataclass(frozen=True)
class Around:
    name: str
    program: str
    kind: str
    model: Callable[[Any], Any] = _same
    batch: Callable[[Any], Any] = _same
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    reduce: bool = True


def _weight(model: Any) -> Any:
    model.layers[1].fc1.weight.data[2, 3] += 0.5
    return model


def _scaled(model: Any) -> Any:
    layer = model.layers[1]
    forward = layer.forward
    layer.forward = lambda x: forward(x, 0.5)
    return model


def _detached(model: Any) -> Any:
    model.head.bias.requires_grad_(False)
    return model


def _more(model: Any) -> Any:
    model.layers[0].act = nn.Sequential(model.layers[0].act, nn.ReLU())
    return model


def _less(model: Any) -> Any:
    model.act = nn.Identity()
    return model


def _other_draws(model: Any) -> Any:
    torch.manual_seed(77)
    return model


def _shifted(given: Any) -> Any:
    return given.roll(1, 0)


def _other_norm(model: Any) -> Any:
    model.norm1.momentum = 0.2
    return model


AROUND = (
    Around("one weight + 0.5", "text", "weight", model=_weight),
    Around("a batch in another order", "image", "data", batch=_shifted),
    Around("twice the learning rate", "image", "hyper-parameter", options={"lr": 2e-3}),
    Around("another weight decay", "text", "hyper-parameter", options={"weight_decay": 0.1}),
    Around("attention with half its scale", "text", "hyper-parameter", model=_scaled),
    Around("batch norm with another momentum", "image", "hyper-parameter", model=_other_norm),
    Around("dropout of another stream", "text", "random stream", model=_other_draws),
    Around("a bias that is detached", "text", "missing operator", model=_detached),
    Around("one relu too many", "text", "missing operator", model=_more),
    Around("a silu that is left out", "image", "missing operator", model=_less),
    Around("gradients that are not averaged", "image", "missing collective", reduce=False),
)
