"""Modules train in training mode, and are evaluated in evaluation mode."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torchport.record.invariants.rule import Rule
from torchport.record.names import list_parameters

LEAST = 3  # calls or steps in a row
RESTS = 5  # steps


class _Seen:
    """The history of one module."""

    def __init__(self) -> None:
        self.trained = False  # an optimizer has stepped after a call with gradients in training mode
        self.evaluated = False  # a call without gradients in evaluation mode, since
        self.steps = 0  # in which it has trained, up to RESTS
        self.resting: set[int] = set()  # modules that trained in evaluation mode in each of those
        self.left = 0  # steps after calls with gradients in evaluation mode, since
        self.step = -1
        self.row = 0  # calls without gradients in training mode since the last step


class Modes(Rule):
    """A part with dropout that trains is in training mode, in some step: `from_pretrained` gives it in the other. A
    model that has trained in training mode does so again after an evaluation; and one that has dropout or a batch
    norm is not evaluated in training mode, several times in a row, without a step between. A model trains if an
    optimizer steps with its parameters: a teacher that has trained before does not."""

    name = "evaluation and training have their modes"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._seen: weakref.WeakKeyDictionary[Any, _Seen] = weakref.WeakKeyDictionary()
        # Called with gradients since the last step, and in which mode.
        self._called: weakref.WeakKeyDictionary[Any, tuple[str, bool]] = weakref.WeakKeyDictionary()

    def on_call(self, site: str, module: Any) -> None:
        """Look at the mode."""
        seen = self._seen.setdefault(module, _Seen())
        if self.torch.is_grad_enabled():
            seen.row = 0
            self._called[module] = site, module.training
        elif seen.trained:
            self.judged += 1
            if module.training:
                self._evaluate(site, module, seen)
            else:
                seen.evaluated = True

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Of the modules that were called, the ones train that the optimizer has parameters of."""
        super().on_step_end(optimizer, number, step)
        ours = {id(one) for one in list_parameters(optimizer)}
        for module, (site, training) in list(self._called.items()):
            if any(id(one) in ours for one in module.parameters()):
                del self._called[module]
                self._train(site, module, self._seen[module], ours, training=training)

    def _train(self, site: str, module: Any, seen: _Seen, ours: set[int], *, training: bool) -> None:
        if seen.steps < RESTS:
            resting = {id(one) for one in self._list_resting(module, ours)}
            seen.resting = resting if not seen.steps else seen.resting & resting
            seen.steps += 1
            if seen.steps == RESTS:
                for one in module.modules():
                    if id(one) in seen.resting:
                        self._report_resting(site, one)
        if training:
            seen.trained, seen.left = True, 0
        elif seen.trained and seen.evaluated:
            seen.left += 1
            if seen.left == LEAST and self._depends_on_mode(module):
                self.report(
                    f"train {type(module).__name__}",
                    f"{type(module).__name__} trained in training mode, was evaluated, and has trained in evaluation "
                    f"mode for {LEAST} steps since: nothing called train() again",
                    site,
                    self.steps - LEAST,
                )

    def _list_resting(self, module: Any, ours: set[int]) -> Iterator[Any]:
        """The outermost modules in evaluation mode with dropout and with parameters that an optimizer trains."""
        if module.training:
            for child in module.children():
                yield from self._list_resting(child, ours)
        elif any(one.requires_grad and id(one) in ours for one in module.parameters()) and self._list_dropouts(module):
            yield module

    def _report_resting(self, site: str, module: Any) -> None:
        self.report(
            f"rests {type(module).__name__}",
            f"{type(module).__name__} trains in evaluation mode, with {len(self._list_dropouts(module))} dropout layers"
            " that do nothing: nothing called train() for it (from_pretrained() returns a model in evaluation mode)",
            site,
            self.steps - RESTS,
        )

    def _evaluate(self, site: str, module: Any, seen: _Seen) -> None:
        if seen.step != self.steps:
            seen.step, seen.row = self.steps, 0
        seen.row += 1
        if seen.row == LEAST and not seen.evaluated and self._depends_on_mode(module):
            self.report(
                f"evaluate {type(module).__name__}",
                f"{type(module).__name__} is called without gradients {LEAST} times in a row in training mode: dropout "
                "and batch norms do then what they do in training",
                site,
                self.steps - 1,
            )

    def _depends_on_mode(self, module: Any) -> bool:
        """Whether it has dropout, or a batch norm that is not just being measured anew: for that its momentum is None
        (`torch.optim.swa_utils.update_bn`) or 1 (precise statistics)."""
        nn = self.torch.nn
        norms = [one for one in module.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
        if any(one.momentum is None or one.momentum == 1 for one in norms):
            return False
        return bool(norms) or bool(self._list_dropouts(module))

    def _list_dropouts(self, module: Any) -> list[Any]:
        kind = self.torch.nn.modules.dropout._DropoutNd
        return [one for one in module.modules() if isinstance(one, kind) and one.p > 0]
