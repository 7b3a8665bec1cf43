"""Gradients are clipped between the backward pass and the step, unscaled, and there are some."""

from __future__ import annotations

import math
import weakref
from typing import Any

from torchport.patches import Patches
from torchport.record import releases
from torchport.record.invariants.rule import Rule

NAMES = ("clip_grad_norm_", "clip_grad_value_")
LEAST = 2  # times
SCALED = 0.01  # of the GradScaler's scale: a limit beyond it was multiplied by the scale, as the gradients are


class Clipping(Rule):
    """`clip_grad_norm_` and `clip_grad_value_` are given gradients of this step, divided by the scale of a
    GradScaler. A limit of infinity measures, and is not judged."""

    name = "gradients are clipped before the step"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._scale: Any = None  # the GradScaler by which a loss was multiplied since the last step
        self._unscaled = False
        self._passed = False  # a backward pass has been since the last step
        self._passes = False  # or ever
        self._counts: dict[str, int] = {}

    def install(self, patches: Patches) -> None:
        """See clipping, and what a GradScaler does."""
        utils = self.torch.nn.utils
        for name in NAMES:
            patches.wrap(utils, name, self._clipping)
            patches.wrap(utils.clip_grad, name, self._clipping)
        scaler = releases.grad_scaler(self.torch)
        patches.wrap(scaler, "scale", self._scaling)
        patches.wrap(scaler, "unscale_", self._unscaling)

    def on_backward_end(self, site: str, by: str, results: Any) -> None:
        """There are gradients of this step."""
        self._passed = self._passes = True

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """They were used."""
        super().on_step_end(optimizer, number, step)
        self._passed = self._unscaled = False
        self._scale = None

    def _scaling(self, original: Any) -> Any:
        def scale(this: Any, *args: Any, **kwargs: Any) -> Any:
            if this.is_enabled():
                self._scale, self._unscaled = weakref.ref(this), False
            return original(this, *args, **kwargs)

        return scale

    def _unscaling(self, original: Any) -> Any:
        def unscale_(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._unscaled = True
            return original(this, *args, **kwargs)

        return unscale_

    def _clipping(self, original: Any) -> Any:
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(parameters, self.torch.Tensor):
                parameters = list(parameters)
            limit = (
                args[0] if args else next((kwargs[name] for name in ("max_norm", "clip_value") if name in kwargs), 0)
            )
            self._look([parameters] if isinstance(parameters, self.torch.Tensor) else parameters, float(limit))
            return original(parameters, *args, **kwargs)

        return clip

    def _look(self, parameters: list[Any], limit: float) -> None:
        if math.isinf(limit):
            return
        self.judged += 1
        scaler = self._scale and self._scale()
        if not parameters:
            self._count("nothing", "clips the gradients of no parameter: an iterator that was used up, or a wrong list")
        elif all(one.grad is None for one in parameters):
            if not self._passed:
                self._count("none", "clips gradients that are not there yet: it runs before the backward pass")
        elif scaler and not self._unscaled and limit < SCALED * scaler.get_scale():
            self._count(
                "scaled", "clips gradients that are multiplied by the GradScaler's scale: unscale_() has to come first"
            )
        elif self.steps and self._passes and not self._passed:
            self._count("late", "clips gradients that the optimizer has stepped with: it runs after the step")

    def _count(self, key: str, text: str) -> None:
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] == LEAST:
            self.report(key, f"the script {text}", self.find_site(), self.steps - LEAST + 1)
