"""An optimizer updates tensors that the program computes with."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.record.invariants.rule import Rule
from torchport.record.names import list_parameters

LEAST, FEW_STEPS = 3, 5  # steps
SHOWN = 3


class Ownership(Rule):
    """Most parameters of each optimizer get a gradient, and are of a module that is called, if modules train."""

    name = "the optimizer updates what the model computes with"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._had: Any = self.torch.utils.weak.WeakIdKeyDictionary()  # parameters with a gradient, once
        self._never: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def on_call(self, site: str, module: Any) -> None:
        """Its parameters are used."""
        if self.torch.is_grad_enabled():
            self._modules.add(module)

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        """Gradients may be gone behind the step: some optimizers clear them."""
        self._note(optimizer, list_parameters(optimizer))

    def _note(self, optimizer: Any, parameters: list[Any]) -> set[int]:
        """Which of the parameters that train never had a gradient, in a step of this optimizer or another (of the one
        that it wraps, say)."""
        never = self._never.setdefault(optimizer, {id(one) for one in parameters if one.requires_grad})
        for one in parameters:
            if one.grad is not None:
                self._had[one] = True
        never -= {id(one) for one in parameters if one in self._had}
        return never

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Count steps without any gradient, and parameters that never had one."""
        super().on_step_end(optimizer, number, step)
        parameters = list_parameters(optimizer)
        never = self._note(optimizer, parameters)
        self.judged += 1
        count = self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if any(one in self._had for one in parameters):
            if count == FEW_STEPS and 2 * len(never) > len(parameters):
                self._report_most(optimizer, number, step, [one for one in parameters if id(one) in never])
            return
        if count < LEAST:
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

    def _report_most(self, optimizer: Any, number: int, step: int, never: list[Any]) -> None:
        names = list(filter(None, map(self.find_name, never)))[:SHOWN]
        words = f" ({', '.join(names)}, ...)" if names else ""
        self.report(
            f"most {number}",
            f"{len(never)} of {len(list_parameters(optimizer))} parameters of optimizer {number} "
            f"({type(optimizer).__name__}) had no gradient in {FEW_STEPS} steps"
            f"{words}: a reentrant checkpoint without inputs that require one, "
            "detach() or no_grad() cuts them off",
            self.find_site(),
            step - FEW_STEPS + 1,
        )
