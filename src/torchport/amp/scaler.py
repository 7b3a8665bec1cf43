"""One loss scale: multiply the loss, divide the gradients, notice overflow, move the scale."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

# Apex's constants for dynamic scaling.
START, FACTOR, WINDOW, CEILING = 2.0**16, 2.0, 2000, 2.0**24


class LossScaler:
    """A static scale (a number) or a dynamic one ("dynamic").

    A dynamic scale starts at 2**16, is halved by each step whose gradients hold inf or nan, not below `minimum`,
    and doubled after 2000 steps without, not above `maximum`. A static scale never moves and skips nothing.
    """

    def __init__(self, loss_scale: float | str, minimum: float | None = None, maximum: float = CEILING) -> None:
        self.dynamic = loss_scale == "dynamic"
        self.scale = min(maximum, START) if self.dynamic else float(loss_scale)
        self.unskipped = 0
        self._minimum = minimum
        self._maximum = maximum
        self._found_inf: dict[torch.device, Tensor] = {}

    def loss_scale(self) -> float:
        """The current scale."""
        return self.scale

    def begin_backward(self) -> None:
        """Begin a backward pass: what overflows from here on counts."""
        if self.dynamic and _saturates():
            torch.npu.utils.clear_npu_overflow_flag()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def unscale_(self, gradients: Iterable[Tensor]) -> None:
        """Divide gradients by the scale in place, and note whether one of them is not finite.

        Any mix of devices and float dtypes; of a sparse gradient, its values.
        """
        groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for gradient in gradients:
            values = gradient._values() if gradient.is_sparse else gradient
            groups.setdefault((values.device, values.dtype), []).append(values)
        for (device, _), tensors in groups.items():
            if device not in self._found_inf:
                self._found_inf[device] = torch.zeros(1, device=device)
            inverse = torch.full((1,), 1.0 / self.scale, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(tensors, self._found_inf[device], inverse)

    def update_scale(self) -> bool:
        """Move the scale by what `unscale_` has seen since the last call. True if the step has to be skipped."""
        overflowed = self.dynamic and self._overflowed()
        self._found_inf.clear()
        if overflowed:
            floor = 0.0 if self._minimum is None else self._minimum
            self.scale = max(floor, self.scale / FACTOR)
            self.unskipped = 0
            return True
        self.unskipped += 1
        if self.dynamic and self.unskipped == WINDOW:
            self.scale = min(self._maximum, self.scale * FACTOR)
            self.unskipped = 0
        return False

    def _overflowed(self) -> bool:
        if any(found.item() for found in self._found_inf.values()):
            return True
        # Such a chip gives the largest float in place of inf and raises a flag. It is one chip's: ranks must agree.
        return _saturates() and _anywhere(torch.npu.utils.get_npu_overflow_flag())


def _saturates() -> bool:
    """Whether an NPU is in use whose arithmetic has no inf and nan (the 910A and older modes)."""
    npu = getattr(torch, "npu", None)
    return npu is not None and npu.is_initialized() and not npu.utils.is_support_inf_nan()


def _anywhere(flag: bool) -> bool:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return flag
    flags = torch.tensor([float(flag)], device="npu")
    distributed.all_reduce(flags, distributed.ReduceOp.MAX)
    return bool(flags.item())
