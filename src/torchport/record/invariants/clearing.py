"""Gradients are cleared between two steps of an optimizer."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

from torchport.record.invariants.rule import Rule
from torchport.record.names import list_parameters

LEAST = 3  # steps in which they were not: one may be meant


@dataclasses.dataclass(slots=True)
class _Used:
    """A gradient that was stepped with, and its version then; `added` says that a backward pass has added to it since,
    and nothing has written to it between."""

    gradient: weakref.ref[Any]  # weak, as the number of its owners decides what torch does
    version: int
    added: bool = False


class GradientsCleared(Rule):
    """The gradients that an optimizer steps with are none that it has stepped with before, with more added to them.

    Code that fills a gradient with zeros, or writes another into it, moves its version before the backward pass does.
    """

    name = "gradients are cleared"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._used: weakref.WeakKeyDictionary[Any, dict[int, _Used]] = weakref.WeakKeyDictionary()
        self._kept: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self._untouched: list[_Used] = []

    def on_backward_begin(self, site: str, by: str, roots: tuple[Any, ...]) -> None:
        """Which of them nothing has written to since the step."""
        every = [one for used in self._used.values() for one in used.values() if not one.added]
        self._untouched = [one for one in every if _get_version(one) == one.version]

    def on_backward_end(self, site: str, by: str, results: Any) -> None:
        """Which of them the pass has added to."""
        untouched, self._untouched = self._untouched, []
        for one in untouched:
            version = _get_version(one)
            one.added = version is not None and version > one.version

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Whether a gradient is there again that was stepped with; then keep in mind what it stepped with."""
        super().on_step_end(optimizer, number, step)
        parameters = list_parameters(optimizer)
        used = self._used.get(optimizer, {})
        again = [one for one in parameters if _is_kept(one, used.get(id(one)))]
        self.judged += optimizer in self._used
        self._used[optimizer] = {
            id(one): _Used(weakref.ref(one.grad), one.grad._version) for one in parameters if one.grad is not None
        }
        if not again:
            return
        kept = self._kept.setdefault(optimizer, [])
        kept.append(step)
        if len(kept) == LEAST:
            self.report(
                f"{number}",
                f"optimizer {number} ({type(optimizer).__name__}) steps with gradients that were added to the "
                f"gradients of earlier steps: nothing cleared {len(again)} of {len(parameters)} in {LEAST} steps",
                self.find_site(),
                kept[0],
            )


def _get_version(used: _Used) -> int | None:
    gradient = used.gradient()
    return None if gradient is None else int(gradient._version)


def _is_kept(parameter: Any, used: _Used | None) -> bool:
    return used is not None and used.added and parameter.grad is not None and used.gradient() is parameter.grad
