"""A spectral norm has iterated before it is used in training."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.patches import Patches
from torchport.record.invariants.rule import Rule

LEAST = 3  # steps


class Normalizing(Rule):
    """`torch.nn.utils.spectral_norm` makes its power iteration in training mode alone, and divides by a random estimate
    until then: nothing trains through such a module in evaluation mode before. The parametrization of the
    same name iterates when it is made."""

    name = "spectral norms have iterated before they are used"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._iterated: weakref.WeakSet[Any] = weakref.WeakSet()
        self._normalized: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        self._used: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """See what is loaded, which has iterated."""
        patches.wrap(self.torch.nn.Module, "load_state_dict", self._loading)

    def _loading(self, original: Any) -> Any:
        def load_state_dict(this: Any, *args: Any, **kwargs: Any) -> Any:
            for one in this.modules():
                self._iterated.add(one)
            return original(this, *args, **kwargs)

        return load_state_dict

    def on_call(self, site: str, module: Any) -> None:
        """Which of its spectral norms iterate, and which are used all the same."""
        if module not in self._normalized:
            self._normalized[module] = [weakref.ref(one) for one in module.modules() if _is_normalized(one)]
        for one in filter(None, (reference() for reference in self._normalized[module])):
            if one.training:
                self._iterated.add(one)
            elif one not in self._iterated and self.torch.is_grad_enabled():
                self._used[one] = site

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """An optimizer has stepped with what went through them."""
        super().on_step_end(optimizer, number, step)
        used, self._used = dict(self._used), weakref.WeakKeyDictionary()
        self.judged += any(self._normalized.values())
        for one, site in used.items():
            if one in self._iterated:
                continue
            self._counts[one] = self._counts.get(one, 0) + 1
            if self._counts[one] == LEAST:
                self.report(
                    "eval",
                    f"an optimizer has stepped {LEAST} times through a {type(one).__name__} with spectral_norm that is "
                    "in evaluation mode and was never called in training mode, where the norm is computed",
                    site,
                    step - LEAST + 1,
                )


def _is_normalized(module: Any) -> bool:
    return any(type(hook).__name__ == "SpectralNorm" for hook in module._forward_pre_hooks.values())
