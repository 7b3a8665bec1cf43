"""FusedLAMB and FusedNovoGrad: norms of whole tensors enter the update."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .fused import Batch, FusedOptimizer


class FusedLAMB(FusedOptimizer):
    """LAMB: Adam's direction, scaled per tensor by |parameter| / |direction|.

    Gradients are first clipped to `max_grad_norm` over all groups (0: not at all). Tensors without weight decay are
    scaled by `lr` alone unless `use_nvlamb`.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults, set_grad_none)
        self.adam_w_mode = int(adam_w_mode)
        self.use_nvlamb = use_nvlamb
        self._clip = 1.0

    def prepare(self) -> None:
        """The clip factor, from the norm of all gradients."""
        grads = [p.grad.float() for group in self.param_groups for p in group["params"] if p.grad is not None]
        limit = self.defaults["max_grad_norm"]
        norm = float(torch.stack(torch._foreach_norm(grads)).norm()) if grads and limit > 0 else 0.0
        self._clip = limit / norm if norm > limit > 0 else 1.0

    @property
    def decoupled(self) -> bool:
        return bool(self.adam_w_mode)

    def condition(self, batch: Batch) -> list[Tensor]:
        return list(torch._foreach_mul(batch.gradients, self._clip))

    def direction(self, batch: Batch) -> list[Tensor]:
        return batch.moments(1 - batch.group["betas"][0] if batch.group["grad_averaging"] else 1.0)

    def scale(self, batch: Batch, direction: list[Tensor]) -> list[Tensor]:
        if batch.group["weight_decay"] or self.use_nvlamb:
            sizes, lengths = torch._foreach_norm(batch.values), torch._foreach_norm(direction)
            for size, length, each in zip(sizes, lengths, direction, strict=True):
                each.mul_(torch.where((size > 0) & (length > 0), size / length, 1.0))
        return direction


class FusedNovoGrad(FusedOptimizer):
    """NovoGrad: the second moment is one norm per tensor (`norm_type` 2, or 0 for the largest element).

    The norm starts with that of the first gradient, or with 0 if `init_zero`. `reg_inside_moment` normalizes and
    decays before the first moment in place of after.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        reg_inside_moment: bool = False,
        grad_averaging: bool = True,
        norm_type: int = 2,
        init_zero: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedNovoGrad does not support the AMSGrad variant.")
        if norm_type not in (0, 2):
            raise RuntimeError("FusedNovoGrad only support l2/inf norm now.")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "norm_type": norm_type,
            "init_zero": init_zero,
        }
        super().__init__(params, defaults, set_grad_none)
        self.moment_mode = 0 if reg_inside_moment else 1

    @property
    def decoupled(self) -> bool:
        return self.moment_mode == 1

    def condition(self, batch: Batch) -> list[Tensor]:
        for gradient, state in zip(batch.gradients, batch.states, strict=True):
            self._blend_norm(batch.group, gradient, state)
        return batch.gradients if self.decoupled else self._normalized(batch, batch.gradients)

    def direction(self, batch: Batch) -> list[Tensor]:
        beta1 = batch.group["betas"][0]
        averages = batch.entries("exp_avg")
        torch._foreach_mul_(averages, beta1)
        fresh = 1 - beta1 if batch.group["grad_averaging"] else 1.0
        torch._foreach_add_(averages, batch.gradients, alpha=fresh)
        corrected = list(torch._foreach_div(averages, batch.corrections()[0]))
        return self._normalized(batch, corrected) if self.decoupled else corrected

    @staticmethod
    def _normalized(batch: Batch, tensors: list[Tensor]) -> list[Tensor]:
        correction, eps = math.sqrt(batch.corrections()[1]), batch.group["eps"]
        norms = [state["exp_avg_sq"] for state in batch.states]
        return [each / (norm / correction + eps) for each, norm in zip(tensors, norms, strict=True)]

    @staticmethod
    def _blend_norm(group: dict[str, Any], gradient: Tensor, state: dict[str, Any]) -> None:
        beta2, two = group["betas"][1], group["norm_type"] == 2
        new = gradient.norm() if two else gradient.abs().max()
        if "exp_avg_sq" not in state:
            state["exp_avg_sq"] = torch.zeros_like(new) if group["init_zero"] else new.clone()
        old = state["exp_avg_sq"]
        blended = (beta2 * old**2 + (1 - beta2) * new**2).sqrt() if two else beta2 * old + (1 - beta2) * new
        old.copy_(blended)
