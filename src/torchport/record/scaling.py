"""GradScaler: what it multiplied the loss by, and the steps that it left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record import quiet, releases
from torchport.record.part import Part


class Scaling(Part):
    """Writes an event `scaler` for each `update()` of a GradScaler that does something."""

    def __init__(self, torch: Any, write: Callable[..., None]) -> None:
        self._torch = torch
        self._write = write
        self._steps = 0
        self._scale = 1.0  # of the last `scale()`, until somebody takes it
        self._last = 1.0
        self._step = 0
        self._skipped = False
        self._inside = False

    def install(self, patches: Patches) -> None:
        """Watch every GradScaler there is."""
        base = releases.grad_scaler(self._torch)
        watched = {"scale": self._scaled, "step": self._stepped, "update": self._updated}
        for scaler in {base, *_subclasses(base)}:
            for name, wrapper in watched.items():
                if name in vars(scaler):
                    patches.wrap(scaler, name, wrapper)

    def take_scale(self) -> float:
        """What the loss whose backward pass begins was multiplied by."""
        scale, self._scale = self._scale, 1.0
        return scale

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Count the steps that were not left out."""
        self._steps = step + 1

    def _scaled(self, original: Any) -> Any:
        def scale(this: Any, outputs: Any) -> Any:
            scaled = original(this, outputs)
            if this.is_enabled():
                with quiet.silence_listeners():
                    self._scale = self._last = float(this.get_scale())
            return scaled

        return scale

    def _stepped(self, original: Any) -> Any:
        def step(this: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not this.is_enabled():  # a subclass calls what it inherits
                return original(this, optimizer, *args, **kwargs)
            before, self._inside = self._steps, True
            try:
                result = original(this, optimizer, *args, **kwargs)
            finally:
                self._inside = False
            self._step = before
            self._skipped |= self._steps == before
            return result

        return step

    def _updated(self, original: Any) -> Any:
        def update(this: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not this.is_enabled():
                return original(this, *args, **kwargs)
            self._inside = True
            try:
                result = original(this, *args, **kwargs)
            finally:
                self._inside = False
            self._write("scaler", step=self._step, scale=self._last, skipped=self._skipped)
            self._skipped = False
            return result

        return update


def _subclasses(kind: Any) -> set[Any]:
    found: set[Any] = set()
    for child in kind.__subclasses__():
        found |= {child, *_subclasses(child)}
    return found
