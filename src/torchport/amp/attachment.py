"""What amp keeps beside an optimizer: fp32 masters, gradients around a backward pass, steps to skip."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchport.amp.casting import forget_casts
from torchport.amp.combined import Bucket, Slot, make_buckets, step_fused
from torchport.amp.model import master_of
from torchport.amp.options import Options
from torchport.amp.scaler import LossScaler

# The attribute of an optimizer that holds its attachment.
ATTRIBUTE = "_torchport_amp"


def attach_to_optimizer(optimizer: Any, options: Options) -> None:
    """Make `optimizer` update fp32 masters of fp16 parameters, and skip steps that overflowed.

    `step`, `zero_grad` and `add_param_group` of this one object are replaced; its class is not. With masters, its
    `param_groups` hold them in place of the model's parameters. Doing it twice is an error (RuntimeError).
    """
    if hasattr(optimizer, ATTRIBUTE):
        raise RuntimeError("amp.initialize was called with this optimizer before; make a new one.")
    attachment = Attachment(optimizer, options)
    setattr(optimizer, ATTRIBUTE, attachment)
    for name in ("step", "zero_grad", "add_param_group"):
        _replace(optimizer, name, getattr(attachment, name))
    if options.combine_grad:
        optimizer.clip_grad_norm_fused_ = attachment.clip_grad_norm
        optimizer.get_optimizer_combined_grads = lambda: [bucket.gradients for bucket in attachment.buckets]
        optimizer.get_optimizer_combined_params = lambda: [bucket.parameters for bucket in attachment.buckets]


def attachment_of(optimizer: Any) -> Attachment:
    """The attachment of an optimizer that went through `initialize`; RuntimeError for another."""
    found = getattr(optimizer, ATTRIBUTE, None)
    if found is None:
        raise RuntimeError(f"this {type(optimizer).__name__} has not been through amp.initialize(model, optimizer).")
    return found  # type: ignore[no-any-return]


class Attachment:
    """The state of one optimizer. `before_backward` and `after_backward` enclose each backward pass."""

    def __init__(self, optimizer: Any, options: Options) -> None:
        self._optimizer = optimizer
        self._options = options
        # torch_npu's fused optimizers combine the gradients at their first step and rely on their place in memory.
        self._own_fusion = bool(getattr(optimizer, "is_fused_optimizer", False))
        self._slots: list[Slot] = []
        self._stash: list[Tensor | None] = []
        self.buckets: list[Bucket] = []
        self.skips_next = False
        self.has_scaled_gradients = False  # a block with delay_unscale has left them
        for index in range(len(optimizer.param_groups)):
            self._take_group(index)
        if options.combine_ddp:
            self._take_parameters_of_rank_0()

    def _take_parameters_of_rank_0(self) -> None:
        """As DistributedDataParallel does when it wraps a model."""
        for slot in self._slots:
            torch.distributed.broadcast(slot.target.data, 0)
            if slot.source is not slot.target:
                slot.source.data.copy_(slot.target.data)

    def _take_group(self, index: int) -> None:
        optimizer = self._optimizer
        parameters = optimizer.param_groups[index]["params"]
        for position, parameter in enumerate(parameters):
            target = parameter
            if self._options.master_weights and parameter.dtype == torch.float16:
                target = Parameter(parameter.detach().float(), requires_grad=parameter.requires_grad)
                master_of[parameter] = target
                parameters[position] = target
                if parameter in optimizer.state:
                    optimizer.state[target] = optimizer.state.pop(parameter)
            self._slots.append(Slot(index, parameter, target))

    # --- a backward pass

    def before_backward(self) -> None:
        """Set gradients aside that earlier passes have left, so that the pass's own can be unscaled alone."""
        if self._options.combine_grad and not self._own_fusion:
            self.buckets = make_buckets(self._slots, self.buckets, self._options.combine_ddp)
        self._stash = []
        for slot in self._slots:
            grad = slot.target.grad
            if self._own_fusion:
                self._stash.append(None if grad is None else grad.clone())
                if grad is not None:
                    grad.zero_()
            else:
                self._stash.append(grad)
                slot.target.grad = None
            if slot.source is not slot.target:
                slot.source.grad = None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def after_backward(self, scaler: LossScaler) -> None:
        """Unscale what the pass has left, in fp32 for parameters with a master, and add what was set aside."""
        if self.buckets:
            stash = dict(zip(self._slots, self._stash, strict=True))
            for bucket in self.buckets:
                bucket.collect_gradients(scaler, stash)
            return
        if self._own_fusion:
            self._unscale_in_place(scaler)
            return
        fresh = []
        for slot in self._slots:
            grad = slot.source.grad
            if grad is not None and slot.source is not slot.target:
                grad = slot.target.grad = grad.float()
            if grad is not None:
                fresh.append(grad)
        scaler.unscale_(fresh)
        for slot, kept in zip(self._slots, self._stash, strict=True):
            if kept is not None:
                grad = slot.target.grad
                slot.target.grad = kept if grad is None else kept.add_(grad)
        self._stash = []

    def _unscale_in_place(self, scaler: LossScaler) -> None:
        for slot in self._slots:
            if slot.source is not slot.target and slot.source.grad is not None:
                if slot.target.grad is None:
                    slot.target.grad = torch.zeros_like(slot.target)
                slot.target.grad.copy_(slot.source.grad)
        present = [slot.target.grad for slot in self._slots if slot.target.grad is not None]
        scaler.unscale_(present)
        for slot, kept in zip(self._slots, self._stash, strict=True):
            if kept is not None:
                slot.target.grad.add_(kept)
        self._stash = []

    # --- what replaces the optimizer's own methods

    def step(self, original: Callable[..., Any], closure: Any = None, **kwargs: Any) -> Any:
        """Step, unless the last backward pass overflowed; then give the new masters to the model."""
        if closure is not None:
            raise RuntimeError("amp does not support optimizers' closures: call step() without one.")
        forget_casts()
        if self.skips_next:
            self.skips_next = False
            self._optimizer._opt_called = True  # learning rate schedulers warn of a step that is missing
            self._drop_master_gradients()
            return None
        result = None
        if kwargs or not step_fused(self._optimizer, original, self.buckets):
            result = original(**kwargs)
        with torch.no_grad():
            self._give_masters()
        self._drop_master_gradients()
        return result

    def _give_masters(self) -> None:
        for bucket in self.buckets:
            if bucket.sources is not None:
                bucket.sources.copy_(bucket.parameters)
        if not self.buckets:
            pairs = [slot for slot in self._slots if slot.source is not slot.target]
            if pairs:
                torch._foreach_copy_([slot.source for slot in pairs], [slot.target for slot in pairs])

    def _drop_master_gradients(self) -> None:
        """The model's own gradients are the user's to clear; the masters' end with the step."""
        for slot in self._slots:
            if slot.source is not slot.target and slot.target.grad is not None:
                if self._own_fusion:
                    slot.target.grad.zero_()
                else:
                    slot.target.grad = None

    def zero_grad(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Clear the optimizer's gradients and those of the model's fp16 parameters."""
        original(*args, **kwargs)
        for slot in self._slots:
            if slot.source is not slot.target:
                slot.source.grad = None
                if slot.target.grad is not None and not self._own_fusion:
                    slot.target.grad = None

    def add_param_group(self, original: Callable[..., Any], param_group: dict[str, Any]) -> None:
        """Add a group; its fp16 parameters get masters too."""
        original(param_group)
        self._take_group(len(self._optimizer.param_groups) - 1)

    def clip_grad_norm(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Clip the combined gradients of all parameters to a total norm, which is returned.

        As torch.nn.utils.clip_grad_norm_ on `amp.master_params(optimizer)`, in one operator per dtype.
        """
        gradients = [bucket.gradients for bucket in self.buckets]
        total = torch.nn.utils.get_total_norm(gradients, norm_type)
        for gradient in gradients:
            gradient.mul_((max_norm / (total + 1e-6)).clamp(max=1.0).to(gradient.device))
        return total


def iter_master_params(optimizer: Any) -> Iterator[Parameter]:
    """The parameters that the optimizer updates: masters where there are such."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _replace(optimizer: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(optimizer, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    method.__name__, method.__doc__ = name, original.__doc__
    setattr(optimizer, name, types.MethodType(method, optimizer))  # schedulers look for the method's __func__
