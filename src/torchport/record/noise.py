"""Rounding noise in a run of the original: what leaf modules give is moved by as little as rounding does.

Another device adds in another order, so what a layer gives differs in its last place. Here it is made to, at random,
and how far the run then goes from the one without is how far rounding alone takes this script.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping
from typing import Any

from torchport.patches import Patches
from torchport.record import releases
from torchport.record.roundoff import CONVOLUTION, FORMATS, MATMUL

APART = 1  # from the seed of the noise in the initial weights


def own_generator(torch: Any, seed: int) -> Any:
    """A generator of torch's own for the CPU, whatever a recorded run has put in the place of `torch.Generator`."""
    return type(torch.default_generator)().manual_seed(seed)


def perturb_by_ulp(torch: Any, value: Any, draws: Any) -> Any:
    """A floating-point tensor with each number moved to the next one of its dtype, up or down at random; zeros and
    infinities, which nothing has rounded, stay."""
    value = value.detach()
    up = torch.rand(value.shape, generator=draws) < 0.5
    towards = torch.where(up, torch.inf, -torch.inf).to(value.dtype)
    exact = (value == 0) | ~value.isfinite()
    return torch.where(exact, value, torch.nextafter(value, towards))


def perturb_weights(torch: Any, value: Any, draws: Any) -> Any:
    """A parameter or buffer, moved by `perturb_by_ulp`; one of whole numbers alone stays, since code may rely on them:
    a mask of ones and zeros that it turns into an index."""
    if not value.is_floating_point() or bool((value == value.round()).all()):
        return value
    return perturb_by_ulp(torch, value, draws)


class Noise:
    """Moves the floating-point outputs of each module call that makes no other module call.

    By one unit in the last place of the output's dtype; where `formats` says that an NPU computes a kind of layer in a
    coarser format (`roundoff`), by that format's roundoff of the size that the output's numbers have. The gradients
    that come back to it are moved by one unit as well: another device adds in another order there. Whole numbers of an
    output stay what they are, since code may rely on them: a mask, an index, a probability of 1.

    Equal tensors are moved alike, by a generator that their bits seed: activation checkpointing computes a module again
    and refuses tensors of other shapes, which a router that was moved otherwise would give. Another `draw` is other
    noise.
    """

    def __init__(self, torch: Any, formats: Mapping[str, str] | None = None, draw: int = 1) -> None:
        self._torch = torch
        self._process = os.getpid()
        self._seed = draw + APART
        self._draws = own_generator(torch, self._seed)
        self._calls = threading.local()
        self._straight = _straight_through(torch)
        nn = torch.nn
        classes = {
            CONVOLUTION: (nn.modules.conv._ConvNd,),
            MATMUL: (nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase),
        }
        self._coarse = [
            (classes[kind], FORMATS[name].roundoff) for kind, name in (formats or {}).items() if name in FORMATS
        ]

    def install(self, patches: Patches) -> None:
        """Move what modules give from now on, until `patches` are undone."""
        modules = self._torch.nn.modules.module
        patches.on_undo(modules.register_module_forward_pre_hook(self._enter).remove)
        patches.on_undo(modules.register_module_forward_hook(self._leave, always_call=True).remove)

    def _enter(self, module: Any, inputs: Any) -> None:
        stack = self._stack()
        if stack:
            stack[-1] = False
        stack.append(True)

    def _leave(self, module: Any, inputs: Any, outputs: Any) -> Any:
        stack = self._stack()
        innermost = stack.pop() if stack else False
        # A child of a data loader works for both runs alike; in a graph or a transform there are no numbers yet.
        if not innermost or os.getpid() != self._process or self._is_traced():
            return None
        given = {id(one) for one in inputs} if isinstance(inputs, tuple) else set()
        roundoff = next((size for kinds, size in self._coarse if isinstance(module, kinds)), None)
        return self._changed(outputs, given, roundoff)

    def _stack(self) -> list[bool]:
        """For each module call that this thread is in: whether it has made no other yet."""
        if not hasattr(self._calls, "stack"):
            self._calls.stack = []
        stack: list[bool] = self._calls.stack
        return stack

    def _is_traced(self) -> bool:
        torch = self._torch
        return bool(releases.is_compiling(torch) or releases.is_within_transform(torch))

    def _changed(self, value: Any, given: set[int], roundoff: float | None) -> Any:
        torch = self._torch
        if type(value) is torch.Tensor:
            # What a module only hands on (Identity, an activation in place) was moved where it was made.
            fits = value.is_floating_point() and value.layout == torch.strided and id(value) not in given
            if not fits or value.device.type != "cpu" or not value.numel():
                return value
            return self._straight.apply(value, functools.partial(self._moved, roundoff=roundoff), self._differing)
        if isinstance(value, tuple):
            parts = [self._changed(part, given, roundoff) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if type(value) is list:
            return [self._changed(part, given, roundoff) for part in value]
        if type(value) is dict:
            return {key: self._changed(part, given, roundoff) for key, part in value.items()}
        return value

    def _moved(self, value: Any, roundoff: float | None) -> Any:
        torch = self._torch
        if roundoff is not None and value.dtype is torch.float32:
            # Products are rounded before they are added, so a sum near 0 errs as much as the others.
            size = torch.maximum(value.abs(), value.square().mean().sqrt())
            sign = torch.where(torch.rand(value.shape, generator=self._seed_by(value)) < 0.5, 1.0, -1.0)
            return value + sign * size * roundoff
        whole = (value == value.round()) & (value.abs() < 1 / torch.finfo(value.dtype).eps)
        return torch.where(whole, value, perturb_by_ulp(torch, value, self._seed_by(value)))

    def _seed_by(self, value: Any) -> Any:
        """The generator, in the state that belongs to these numbers."""
        integers = getattr(self._torch, f"int{8 * value.dtype.itemsize}")
        return self._draws.manual_seed((self._seed + int(value.detach().view(integers).sum())) % 2**63)

    def _differing(self, gradient: Any) -> Any:
        """The gradient, moved as an output is; a second derivative does not see it."""
        torch = self._torch
        if type(gradient) is not torch.Tensor or gradient.layout != torch.strided or self._is_traced():
            return gradient
        difference = perturb_by_ulp(torch, gradient, self._seed_by(gradient)) - gradient.detach()
        return gradient + difference.nan_to_num(0.0)  # what overflows stays infinite


def _straight_through(torch: Any) -> Any:
    """Gives what a callable makes of a tensor, with the gradient of the tensor itself, of which another callable may
    make something in the backward pass."""

    class StraightThrough(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, value: Any, move: Any, differ: Any) -> Any:
            context.differ = differ
            return move(value)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return context.differ(gradient), None, None

        @staticmethod
        def jvp(context: Any, tangent: Any, *none: Any) -> Any:
            return tangent.view_as(tangent)

    return StraightThrough
