"""Layer-wise adaptive rate control around any optimizer."""

from __future__ import annotations

from typing import Any

import torch


class LARC:
    """Scales each parameter's gradient by trust_coefficient * |p| / (|g| + weight_decay * |p| + eps).

    With `clip` the resulting learning rate is at most the group's own. Weight decay is applied here, the wrapped
    optimizer runs without.
    """

    def __init__(self, optimizer: Any, trust_coefficient: float = 0.02, clip: bool = True, eps: float = 1e-8) -> None:
        self.optim = optimizer
        self.trust_coefficient = trust_coefficient
        self.clip = clip
        self.eps = eps

    def __getattr__(self, name: str) -> Any:
        if name == "optim":  # while unpickling, before it is there
            raise AttributeError(name)
        return getattr(self.optim, name)

    @property
    def param_groups(self) -> Any:
        """The wrapped optimizer's groups."""
        return self.optim.param_groups

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        self.optim.param_groups = value

    def step(self) -> None:
        """Scale the gradients, then step."""
        decays = [group.get("weight_decay", 0) for group in self.optim.param_groups]
        with torch.no_grad():
            for group, decay in zip(self.optim.param_groups, decays, strict=True):
                group["weight_decay"] = 0
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._scale(parameter, group["lr"], decay)
        try:
            self.optim.step()
        finally:
            for group, decay in zip(self.optim.param_groups, decays, strict=True):
                group["weight_decay"] = decay

    def _scale(self, parameter: Any, lr: float, decay: float) -> None:
        size, slope = parameter.norm(), parameter.grad.norm()
        rate = self.trust_coefficient * size / (slope + size * decay + self.eps)
        if self.clip:
            rate = (rate / lr).clamp(max=1)
        # Where one of the norms is 0 the gradient stays as it is, without weight decay.
        adapted = (parameter.grad + decay * parameter) * rate
        parameter.grad.copy_(torch.where((size != 0) & (slope != 0), adapted, parameter.grad))
