"""The norms of the tensors that modules are given while a script trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.record import quiet
from torchport.record.norms import Norms
from torchport.record.part import Part
from torchport.record.quantities import round_for_json, suspend_tracking
from torchport.record.readings import Readings

STEPS = 20
CALLS, LATER_CALLS = 64, 8  # outermost calls of one step that are recorded: of the first `STEPS`, and of later ones


class Inputs(Part):
    """Writes an event `inputs` for each outermost call with gradients, of which a step may have many."""

    def __init__(self, torch: Any, write: Callable[..., None], readings: Readings) -> None:
        self._torch = torch
        self._write = write
        self._readings = readings
        self._step = 0
        self._calls = 0
        self._training = False

    def training_starts(self) -> None:
        """Steps of an evaluation before it do not count."""
        self._training = True

    @quiet.silence_operators
    def record_inputs(self, site: str, tensors: list[Any]) -> None:
        """An outermost call of a module at `site` was given `tensors`."""
        torch = self._torch
        most = CALLS if self._step < STEPS else LATER_CALLS
        if not torch.is_grad_enabled() or self._calls >= most or not self._readings.can_read():
            return
        self._calls += 1
        step = self._step
        with suspend_tracking(torch):
            plainly = [
                tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.float()
                for tensor in tensors
                if tensor.layout == torch.strided and tensor.device.type != "meta"
            ]
            norms = Norms(torch, plainly)
        half = [number for number, tensor in enumerate(plainly) if tensor.dtype in (torch.float16, torch.bfloat16)]
        self._readings.schedule_write(
            norms.vectors,
            lambda values: self._write(
                "inputs", site=site, step=step, half=half, norms=round_for_json(norms.assemble_norms(values))
            ),
        )

    def step_done(self) -> None:
        """The next calls belong to the next step."""
        self._calls = 0
        self._step += self._training
