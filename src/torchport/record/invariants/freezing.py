"""Layers that a program freezes are frozen."""

from __future__ import annotations

from typing import Any

from torchport.record.invariants.rule import Look


class Freezing(Look):
    """A module with `frozen_stages` above 0, as the backbones of OpenMMLab have it, trains with some parameters frozen:
    they freeze in `train()`, and a runner that never calls it trains all of them. No module is given an attribute
    `requires_grad`, which freezes nothing (`requires_grad_()` does).
    """

    name = "layers that are to be frozen are frozen"

    def look(self, site: str, module: Any) -> None:
        """Ask the module and all in it."""
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
