"""Dropout rests in evaluation."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.patches import Patches
from torchport.record.invariants.rule import Rule

LEAST = 3  # calls
NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
ATTENTION = "scaled_dot_product_attention"


class Dropout(Rule):
    """While a model that has all of its modules in evaluation mode is called without gradients, nothing calls a dropout
    function with `training=True`, or attention with a `dropout_p`: both know nothing of the mode."""

    name = "dropout rests in evaluation"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._evaluated: weakref.ref[Any] | None = None
        self._counts: dict[str, int] = {}

    def install(self, patches: Patches) -> None:
        """See the functions."""
        functional = self.torch.nn.functional
        for name in NAMES:
            patches.wrap(functional, name, self._dropping)
        patches.wrap(functional, ATTENTION, self._attending)

    def on_call_begin(self, module: Any) -> None:
        """Whether it is evaluated."""
        evaluated = not self.torch.is_grad_enabled() and not any(one.training for one in module.modules())
        self._evaluated = weakref.ref(module) if evaluated else None
        self.judged += evaluated and bool(self.steps)

    def on_call(self, site: str, module: Any) -> None:
        """It has returned."""
        self._evaluated = None

    def _dropping(self, original: Any) -> Any:
        def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if training and p > 0:
                self._look(f"F.{original.__name__} with p={p:g} and training=True")
            return original(input, p, training, inplace)

        return dropout

    def _attending(self, original: Any) -> Any:
        def attention(*args: Any, **kwargs: Any) -> Any:
            share = args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)
            if share > 0:
                self._look(f"{ATTENTION} with dropout_p={share:g}")
            return original(*args, **kwargs)

        return attention

    def _look(self, what: str) -> None:
        module = self._evaluated() if self._evaluated is not None else None
        if module is None or not self.steps:
            return
        self._counts[what] = self._counts.get(what, 0) + 1
        if self._counts[what] == LEAST:
            self.report(
                what,
                f"{type(module).__name__} is in evaluation mode and calls {what}",
                self.find_site(),
                self.steps - 1,
            )
