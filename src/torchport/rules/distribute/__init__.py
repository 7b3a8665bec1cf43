"""Rules that make a script for one device a script for several: `torchport convert --distributed`.

They look at a CUDA script and write CUDA, as a person would have written it for several GPUs with torchrun; the other
rules then convert the result, in either style. One rule is one module in this folder with a `RULE`, found by scanning.
Each looks at the script on its own: none needs what another has written but the constants that `start` defines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from torchport.findings import Finding
from torchport.rules import Rule, Style, rules_in
from torchport.rules.distribute.script import Script
from torchport.source.module import Module


def on_script(check: Callable[[Script], Iterator[Finding]]) -> Callable[[Module, Style], Iterable[Finding]]:
    """A rule's check that only looks at scripts that are to be distributed; the style does not matter to it."""

    def run(module: Module, style: Style) -> Iterable[Finding]:
        return check(module) if isinstance(module, Script) else ()

    return run


@functools.cache
def distribution_rules() -> tuple[Rule, ...]:
    """All rules of this folder, ordered by code."""
    return rules_in(__name__, Rule)
