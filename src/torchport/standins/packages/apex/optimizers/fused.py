"""What apex's fused optimizers share: lists of tensors, float32 arithmetic, gradients that are set to None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Batch:
    """The parameters of a group that have a gradient, in float32, with what the optimizer keeps of each.

    `values` are changed in place. `gradients` may be the parameters' own: replaced, never changed.
    """

    group: dict[str, Any]
    values: list[Tensor]
    gradients: list[Tensor]
    states: list[dict[str, Any]]

    def entries(self, name: str) -> list[Tensor]:
        """Each state's tensor `name`; zeros like the parameter where it has none yet."""
        for state, value in zip(self.states, self.values, strict=True):
            if name not in state:
                state[name] = torch.zeros_like(value)
        return [state[name] for state in self.states]

    def corrections(self) -> tuple[float, float]:
        """What Adam's two moments are divided by: 1 - beta ** step, or 1 without bias correction."""
        first, second = (1 - beta ** self.group["step"] for beta in self.group["betas"])
        return (first, second) if self.group["bias_correction"] else (1.0, 1.0)

    def moments(self, fresh: float) -> list[Tensor]:
        """Adam's direction: blend the gradients into both moments, give m / (sqrt(v) + eps), bias corrected.

        `fresh` is the weight of a gradient in the first moment.
        """
        beta1, beta2 = self.group["betas"]
        correction1, correction2 = self.corrections()
        first, second = self.entries("exp_avg"), self.entries("exp_avg_sq")
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, self.gradients, alpha=fresh)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, self.gradients, self.gradients, value=1 - beta2)
        denominator = torch._foreach_div(second, correction2)
        torch._foreach_sqrt_(denominator)
        torch._foreach_add_(denominator, self.group["eps"])
        direction = torch._foreach_div(first, correction1)
        torch._foreach_div_(direction, denominator)
        return list(direction)


class FusedOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """Steps on all parameters of a group at once (torch's foreach operators).

    Parameters in float16 or bfloat16 are updated in float32 and rounded once. A group counts its steps in
    `group["step"]`. `set_grad_none` is what `zero_grad()` does without an argument.

    A subclass is its `direction`, and what else its rule has: `decoupled`, `prepare`, `condition`, `scale`.
    """

    # Whether the update of an element depends on that element alone; torchport.amp.combined asks.
    is_elementwise = False

    def __init__(self, params: Any, defaults: dict[str, Any], set_grad_none: bool) -> None:
        super().__init__(params, defaults)
        self.set_grad_none = set_grad_none

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear the gradients."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None, **removed: Any) -> Any:
        """Update every parameter that has a gradient. Raises RuntimeError for sparse gradients."""
        if any(value is not None for value in removed.values()):
            raise RuntimeError(f"{type(self).__name__}.step() takes no {', '.join(removed)}, as in apex today.")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.prepare()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            if any(p.grad.is_sparse for p in parameters):
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
            group["step"] = group.get("step", 0) + 1
            values = [p.detach().float() for p in parameters]  # float32 ones are not copied
            gradients = [p.grad.float() for p in parameters]
            self._update(Batch(group, values, gradients, [self.state[p] for p in parameters]))
            rounded = [pair for pair in zip(parameters, values, strict=True) if pair[0].dtype != torch.float32]
            if rounded:
                torch._foreach_copy_([p for p, _ in rounded], [value for _, value in rounded])
        return loss

    def _update(self, batch: Batch) -> None:
        decay = batch.group["weight_decay"]
        batch.gradients = self.condition(batch)
        if decay and not self.decoupled:
            batch.gradients = torch._foreach_add(batch.gradients, batch.values, alpha=decay)
        direction = self.direction(batch)
        if decay and self.decoupled:
            direction = torch._foreach_add(direction, batch.values, alpha=decay)
        torch._foreach_add_(batch.values, self.scale(batch, direction), alpha=-batch.group["lr"])

    @property
    def decoupled(self) -> bool:
        """Whether the weight decay is added to the direction instead of the gradient."""
        raise NotImplementedError

    def prepare(self) -> None:
        """What a step needs to know of all groups together."""

    def condition(self, batch: Batch) -> list[Tensor]:
        """The gradients as the rule takes them."""
        return batch.gradients

    def direction(self, batch: Batch) -> list[Tensor]:
        """Where the parameters move, the learning rate aside; keeps what the next step needs in `batch.states`."""
        raise NotImplementedError

    def scale(self, batch: Batch, direction: list[Tensor]) -> list[Tensor]:
        """The direction with its weight decay, scaled per tensor."""
        return direction
