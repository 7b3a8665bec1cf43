"""The base of all rules: it counts what was judged, and says a thing once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record.part import Part


class Rule(Part):
    """Is told of steps, backward passes and outermost calls of modules; `report` writes what does not hold.

    At the end it writes an event `watched` with the number of times that it had something to judge.
    """

    name = ""

    def __init__(
        self, torch: Any, write: Callable[..., None], find_site: Callable[[], str], find_name: Callable[[Any], str]
    ) -> None:
        self.torch = torch
        self.find_name = find_name  # of a parameter, "" where it has none
        self.steps = 0  # of all optimizers
        self.judged = 0
        self._write = write
        self._find_site = find_site
        self._told: set[str] = set()

    def install(self, patches: Patches) -> None:
        """Patch what the rule has to see; nothing by default."""

    def on_call_begin(self, module: Any) -> None:
        """An outermost module is about to be called."""

    def on_call(self, site: str, module: Any) -> None:
        """An outermost module was called at `site`."""

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """An optimizer has stepped."""
        self.steps = step + 1

    def finish(self) -> None:
        """Say how far the word reaches."""
        self._write("watched", name=self.name, judged=self.judged)

    def find_site(self) -> str:
        """The line of the user's that runs."""
        return self._find_site()

    def report(self, key: str, text: str, site: str, since: int) -> None:
        """Say once for each `key` that the invariant does not hold, `since` the step in which it first did not."""
        if key not in self._told:
            self._told.add(key)
            self._write("invariant", name=self.name, text=text, site=site, step=max(since, 0))


class Look(Rule):
    """Looks at each outermost module once, when it trains first."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._looked: weakref.WeakSet[Any] = weakref.WeakSet()

    def on_call(self, site: str, module: Any) -> None:
        """Look, where gradients are wanted."""
        if module not in self._looked and self.torch.is_grad_enabled():
            self._looked.add(module)
            self.look(site, module)

    def look(self, site: str, module: Any) -> None:
        """The module is called at `site`."""


def get_local(tensor: Any) -> Any:
    """The part of a tensor that this process holds, detached: a shard of a DTensor."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()
