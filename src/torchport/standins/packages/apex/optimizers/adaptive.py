"""FusedAdam, FusedSGD, FusedAdagrad: each element by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .fused import Batch, FusedOptimizer


class FusedAdam(FusedOptimizer):
    """AdamW, or Adam with L2 regularisation if `adam_w_mode` is off; moments in float32.

    `capturable` and `master_weights` serve CUDA graphs: RuntimeError.
    """

    is_elementwise = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        if capturable or master_weights:
            raise RuntimeError("FusedAdam with capturable or master_weights serves CUDA graphs: leave them out.")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults, set_grad_none)
        self.adam_w_mode = int(adam_w_mode)

    @property
    def decoupled(self) -> bool:
        return bool(self.adam_w_mode)

    def direction(self, batch: Batch) -> list[Tensor]:
        return batch.moments(1 - batch.group["betas"][0])


class FusedSGD(FusedOptimizer):
    """SGD with momentum as in torch; `wd_after_momentum` adds the weight decay to the blended gradient."""

    is_elementwise = True

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        wd_after_momentum: bool = False,
        materialize_master_grads: bool = True,
        set_grad_none: bool = False,
    ) -> None:
        if min(lr, momentum, weight_decay) < 0:
            raise ValueError(f"Invalid lr {lr}, momentum {momentum} or weight_decay {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults, set_grad_none)
        self.wd_after_momentum = wd_after_momentum

    @property
    def decoupled(self) -> bool:
        return self.wd_after_momentum

    def direction(self, batch: Batch) -> list[Tensor]:
        momentum, gradients, states = batch.group["momentum"], batch.gradients, batch.states
        if not momentum:
            return gradients
        known = [i for i, state in enumerate(states) if state.get("momentum_buffer") is not None]
        if known:
            buffers = [states[i]["momentum_buffer"] for i in known]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, [gradients[i] for i in known], alpha=1 - batch.group["dampening"])
        for i in set(range(len(states))).difference(known):
            states[i]["momentum_buffer"] = gradients[i].clone()
        blended = [state["momentum_buffer"] for state in states]
        return list(torch._foreach_add(gradients, blended, alpha=momentum)) if batch.group["nesterov"] else blended


class FusedAdagrad(FusedOptimizer):
    """Adagrad; `adagrad_w_mode` decouples the weight decay."""

    is_elementwise = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
        adagrad_w_mode: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": weight_decay}, set_grad_none)
        self.adagrad_w_mode = int(adagrad_w_mode)

    @property
    def decoupled(self) -> bool:
        return bool(self.adagrad_w_mode)

    def direction(self, batch: Batch) -> list[Tensor]:
        sums = batch.entries("sum")
        torch._foreach_addcmul_(sums, batch.gradients, batch.gradients, value=1.0)
        denominator = torch._foreach_sqrt(sums)
        torch._foreach_add_(denominator, batch.group["eps"])
        return list(torch._foreach_div(batch.gradients, denominator))
