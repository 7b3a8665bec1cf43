"""Calls of modules without gradients while a script trains: evaluations, teachers, target networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.record import quiet
from torchport.record.norms import Norms
from torchport.record.part import Part
from torchport.record.quantities import round_for_json, suspend_tracking
from torchport.record.readings import Readings

CALLS = 8  # of one site between two steps that are recorded


class Evaluations(Part):
    """Writes an event `evaluation` for each outermost call without gradients once the training has started.

    With `spoil` the modules of the first one are in training mode while that is looked at, an event `planted`.
    """

    def __init__(self, torch: Any, write: Callable[..., None], readings: Readings, *, spoil: bool = False) -> None:
        self._torch = torch
        self._spoil = spoil
        self._write = write
        self._readings = readings
        self._training = False
        self._step = 0
        self._calls: dict[str, int] = {}

    def training_starts(self) -> None:
        """Calls before the training belong to the start."""
        self._training = True

    def step_done(self) -> None:
        """The next calls are those after another step."""
        self._step += self._training
        self._calls.clear()

    @quiet.silence_operators
    def record_call(self, site: str, module: Any, outputs: list[Any]) -> None:
        """`module`, called at `site`, gave these floating-point tensors."""
        if not self._training or self._torch.is_grad_enabled() or not self._readings.can_read():
            return
        call = self._calls.get(site, 0)
        if call >= CALLS:
            return
        self._calls[site] = call + 1
        modes = self._read_modes(site, module)
        fields = {"step": self._step, "call": call, "training": sum(modes), "modules": len(modes)}
        with suspend_tracking(self._torch):
            norms = Norms(self._torch, [tensor for tensor in outputs if tensor.device.type != "meta"])
        self._readings.schedule_write(
            norms.vectors,
            lambda values: self._write(
                "evaluation", site=site, norms=round_for_json(norms.assemble_norms(values)), **fields
            ),
        )

    def _read_modes(self, site: str, module: Any) -> list[bool]:
        """Which modules are in training mode."""
        modules = list(module.modules())
        before = [each.training for each in modules]
        if not self._spoil or all(before):
            return before
        self._spoil = False
        self._write("planted", name="evaluation", where=site, step=self._step)
        try:
            for each in modules:
                each.training = True
            return [each.training for each in modules]
        finally:
            for each, mode in zip(modules, before, strict=True):
                each.training = mode
