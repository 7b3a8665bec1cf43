"""The overflow flag of NPUs that have no infinity: they give the largest number in its place, and raise a flag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.record import quiet
from torchport.record.part import Part


class FloatStatus(Part):
    """Writes an event `overflowed` for each step after which the flag is up and was not before it.

    The flag is read alone: who takes it back is the script (its GradScaler does before each backward pass). Nothing is
    asked of devices that have infinity, where the numbers themselves say so; Ascend910B refuses the flag.
    """

    def __init__(self, torch: Any, write: Callable[..., None]) -> None:
        self._torch = torch
        self._write = write
        self._step = 0
        self._up = False

    @quiet.silence_operators
    def step_done(self) -> None:
        """Look at the flag."""
        step, self._step = self._step, self._step + 1
        npu = getattr(self._torch, "npu", None)
        if npu is None or not npu.is_initialized() or npu.utils.is_support_inf_nan():
            return
        before, self._up = self._up, bool(npu.utils.get_npu_overflow_flag())
        if self._up and not before:
            self._write("overflowed", step=step)
