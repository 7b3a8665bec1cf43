"""In how many optimizer steps of a recorded run each NPU has run an operator."""

from __future__ import annotations

from typing import Any

from torchport import vnpu
from torchport.record import used_devices
from torchport.record.part import Part


class StepsOnDevices(Part):
    """Counts the optimizer steps, and those in which an operator has run on each NPU, for the line at the end."""

    def __init__(self) -> None:
        self._stepped = False
        self._before: dict[int, int] = {}

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """An optimizer has stepped: the device is waited for before `step_done`."""
        self._stepped = True

    def step_done(self) -> None:
        """Count the step, unless it was a call of the model."""
        if not self._stepped:
            return
        self._stepped = False
        counts = vnpu.launches_by_device() or {}
        used_devices.count_step([device for device, count in counts.items() if count > self._before.get(device, 0)])
        self._before = counts
