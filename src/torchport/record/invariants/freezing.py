"""Stages that a backbone is told to freeze are frozen."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.record.invariants.rule import Rule


class Freezing(Rule):
    """A module with `frozen_stages` above 0, as the backbones of OpenMMLab have it, trains with some parameters frozen.

    They freeze in `train()`: a runner that never calls it trains all of them.
    """

    name = "stages that are to be frozen are frozen"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._looked: weakref.WeakSet[Any] = weakref.WeakSet()

    def on_call(self, site: str, module: Any) -> None:
        """Look once, when it trains."""
        if module in self._looked or not self.torch.is_grad_enabled():
            return
        self._looked.add(module)
        for one in module.modules():
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
