"""Layers that a program freezes are frozen."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.record.invariants.rule import Rule


class Freezing(Rule):
    """A module with `frozen_stages` above 0, as the backbones of OpenMMLab have it, trains with some parameters frozen:
    they freeze in `train()`, and a runner that never calls it trains all of them. No module is given an attribute
    `requires_grad`, which freezes nothing (`requires_grad_()` does).
    """

    name = "layers that are to be frozen are frozen"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._looked: weakref.WeakSet[Any] = weakref.WeakSet()

    def on_call(self, site: str, module: Any) -> None:
        """Look once, when it trains."""
        if module in self._looked or not self.torch.is_grad_enabled():
            return
        self._looked.add(module)
        for one in module.modules():
            if vars(one).get("requires_grad") is False and any(own.requires_grad for own in one.parameters()):
                self.judged += 1
                self.report(
                    f"attribute {type(one).__name__}",
                    f"a {type(one).__name__} was given requires_grad=False, which is an attribute like any other: its "
                    "parameters train. `requires_grad_(False)` freezes them",
                    site,
                    self.steps,
                )
            stages = getattr(one, "frozen_stages", None)
            if type(stages) is not int or stages < 1:
                continue
            self.judged += 1
            if all(parameter.requires_grad for parameter in one.parameters()):
                self.report(
                    type(one).__name__,
                    f"{type(one).__name__} has frozen_stages={stages} and trains all of its parameters: nothing called "
                    "its train(), which freezes them",
                    site,
                    self.steps,
                )
