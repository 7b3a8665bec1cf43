"""FusedLAMB and FusedNovoGrad: norms of whole tensors enter the update."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .fused import FusedOptimizer, moments


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

    def update(
        self,
        group: dict[str, Any],
        values: list[Tensor],
        gradients: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        decay = group["weight_decay"]
        gradients = torch._foreach_mul(gradients, self._clip)
        if decay and not self.adam_w_mode:
            torch._foreach_add_(gradients, values, alpha=decay)
        fresh = 1 - group["betas"][0] if group["grad_averaging"] else 1.0
        direction = moments(group, values, gradients, states, fresh)
        if decay and self.adam_w_mode:
            torch._foreach_add_(direction, values, alpha=decay)
        if decay or self.use_nvlamb:
            sizes, lengths = torch._foreach_norm(values), torch._foreach_norm(direction)
            for size, length, each in zip(sizes, lengths, direction, strict=True):
                each.mul_(torch.where((size > 0) & (length > 0), size / length, 1.0))
        torch._foreach_add_(values, direction, alpha=-group["lr"])


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

    def update(
        self,
        group: dict[str, Any],
        values: list[Tensor],
        gradients: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        beta1, beta2 = group["betas"]
        step, corrected, decay = group["step"], group["bias_correction"], group["weight_decay"]
        correction1 = 1 - beta1**step if corrected else 1.0
        correction2 = math.sqrt(1 - beta2**step) if corrected else 1.0
        fresh = 1 - beta1 if group["grad_averaging"] else 1.0
        for value, gradient, state in zip(values, gradients, states, strict=True):
            norm = self._blended_norm(group, gradient, state)
            denominator = norm / correction2 + group["eps"]
            average = state.setdefault("exp_avg", torch.zeros_like(value)).mul_(beta1)
            if self.moment_mode == 0:
                average.add_(gradient / denominator + decay * value, alpha=fresh)
                value.sub_(average, alpha=group["lr"] / correction1)
            else:
                average.add_(gradient, alpha=fresh)
                value.sub_(average / correction1 / denominator + decay * value, alpha=group["lr"])

    @staticmethod
    def _blended_norm(group: dict[str, Any], gradient: Tensor, state: dict[str, Any]) -> Tensor:
        beta2, two = group["betas"][1], group["norm_type"] == 2
        new = gradient.norm() if two else gradient.abs().max()
        if "exp_avg_sq" not in state:
            state["exp_avg_sq"] = torch.zeros_like(new) if group["init_zero"] else new.clone()
        old = state["exp_avg_sq"]
        blended = (beta2 * old**2 + (1 - beta2) * new**2).sqrt() if two else beta2 * old + (1 - beta2) * new
        return old.copy_(blended)
