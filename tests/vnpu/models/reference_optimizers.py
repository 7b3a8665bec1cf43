"""Optimizers that torch_npu has and torch has not, written out plainly: what the fused ones have to equal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Plain(torch.optim.Optimizer):
    """One parameter at a time: `change` returns what to subtract. `self.state[p]` starts with zeros `m` and `v`."""

    def __init__(self, parameters: Iterable[Tensor], **options: Any) -> None:
        super().__init__(parameters, options)
        self.count = 0

    def change(self, p: Tensor, g: Tensor, s: dict[str, Tensor], **options: Any) -> Tensor:
        raise NotImplementedError

    def before(self, group: dict[str, Any]) -> None:
        """Changes all gradients of a group together."""

    @torch.no_grad()
    def step(self) -> None:
        self.count += 1
        for group in self.param_groups:
            self.before(group)
            options = {key: value for key, value in group.items() if key != "params"}
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(m=torch.zeros_like(p), v=torch.zeros_like(p))
                p -= self.change(p, p.grad, state, **options)


def moments(g: Tensor, s: dict[str, Tensor], beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    s["m"] = beta1 * s["m"] + (1 - beta1) * g
    s["v"] = beta2 * s["v"] + (1 - beta2) * g * g
    return s["m"], s["v"]


class Lamb(Plain):
    """You et al. 2020 without bias correction, weight norm cut at 10 (as in the authors' first version)."""

    def change(self, p: Tensor, g: Tensor, s: dict[str, Tensor], lr: float, weight_decay: float) -> Tensor:
        m, v = moments(g, s, 0.9, 0.999)
        step = m / (v.sqrt() + 1e-6) + weight_decay * p
        weight, length = p.norm().clamp(0, 10), step.norm()
        trust = 1.0 if weight == 0 or length == 0 else weight / length
        return lr * trust * step


class AdamP(Plain):
    """Heo et al. 2021 with Nesterov momentum; delta 0.1, weight decay ratio 0.1."""

    def change(
        self, p: Tensor, g: Tensor, s: dict[str, Tensor], lr: float, weight_decay: float, nesterov: bool
    ) -> Tensor:
        m, v = moments(g, s, 0.9, 0.999)
        denominator = v.sqrt() / math.sqrt(1 - 0.999**self.count) + 1e-8
        step = (0.9 * m + 0.1 * g if nesterov else m) / denominator
        ratio = 1.0
        if p.dim() > 1:
            for rows in (p.shape[0], 1):
                flat_p, flat_g = p.reshape(rows, -1), g.reshape(rows, -1)
                cosine = (flat_p * flat_g).sum(1).abs() / (flat_p.norm(dim=1) * flat_g.norm(dim=1))
                if cosine.max() < 0.1 / math.sqrt(flat_p.shape[1]):
                    unit = flat_p / flat_p.norm(dim=1, keepdim=True)
                    flat = step.reshape(rows, -1)
                    step = (flat - unit * (unit * flat).sum(1, keepdim=True)).view_as(p)
                    ratio = 0.1
                    break
        p *= 1 - lr * weight_decay * ratio
        return lr / (1 - 0.9**self.count) * step


class BertAdam(Plain):
    """Adam of the original BERT: no bias correction, gradients clipped to a common norm, decay inside the step."""

    def before(self, group: dict[str, Any]) -> None:
        total = torch.cat([p.grad.flatten() for p in group["params"]]).norm()
        for p in group["params"]:
            p.grad *= (group["max_grad_norm"] / (total + 1e-6)).clamp(max=1)

    def change(
        self, p: Tensor, g: Tensor, s: dict[str, Tensor], lr: float, weight_decay: float, max_grad_norm: float
    ) -> Tensor:
        m, v = moments(g, s, 0.9, 0.999)
        return lr * (m / (v.sqrt() + 1e-6) + weight_decay * p)


class RMSpropTF(Plain):
    """TensorFlow's RMSprop: the mean square starts at one, epsilon inside the root, learning rate in the momentum."""

    def change(self, p: Tensor, g: Tensor, s: dict[str, Tensor], lr: float, momentum: float) -> Tensor:
        if self.count == 1:
            s["v"] = torch.ones_like(p)
        s["v"] = 0.9 * s["v"] + 0.1 * g * g
        s["m"] = momentum * s["m"] + lr * g / (s["v"] + 1e-10).sqrt()
        return s["m"]
