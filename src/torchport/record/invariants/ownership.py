"""An optimizer updates tensors that the program computes with."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.record.invariants.rule import Rule
from torchport.record.names import list_parameters

LEAST = 3  # steps


class Ownership(Rule):
    """Some parameter of each optimizer gets a gradient, and is one of a module that is called, if modules train."""

    name = "the optimizer updates what the model computes with"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._fed: weakref.WeakSet[Any] = weakref.WeakSet()  # with gradients, once
        self._without: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def on_call(self, site: str, module: Any) -> None:
        """Its parameters are used."""
        if self.torch.is_grad_enabled():
            self._modules.add(module)

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Count steps without any gradient."""
        super().on_step_end(optimizer, number, step)
        parameters = list_parameters(optimizer)
        self.judged += 1
        if any(one.grad is not None for one in parameters):
            self._fed.add(optimizer)
        if optimizer in self._fed:
            return
        self._without[optimizer] = self._without.get(optimizer, 0) + 1
        if self._without[optimizer] < LEAST:
            return
        ours = {id(one) for one in parameters}
        called = [one for module in self._modules for one in module.parameters() if one.requires_grad]
        trained = [one for one in called if one.grad is not None]
        stale = trained and not any(id(one) in ours for one in called)
        why = (
            "the modules that are called have other parameters, which do get gradients: they were made, moved or "
            "wrapped after the optimizer was built"
            if stale
            else "nothing that is differentiated leads to them"
        )
        self.report(
            f"{number}",
            f"optimizer {number} ({type(optimizer).__name__}) has stepped {LEAST} times without a gradient of any of "
            f"its {len(parameters)} parameters: {why}",
            self.find_site(),
            step - LEAST + 1,
        )
