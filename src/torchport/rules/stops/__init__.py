"""Rules for what stops on torch_npu although nothing in it names CUDA. None has a fix.

Each states what the unmodified torch_npu was seen to refuse, or to compute otherwise; `tests/vnpu/test_what_stops.py`
tries each of them there, with what works beside it. One rule is one module here with a `RULE`, found by scanning.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from torchport.findings import Finding
from torchport.rules import Rule, Style, rules_in
from torchport.source.module import Module


@functools.cache
def stop_rules() -> tuple[Rule, ...]:
    """All rules of this folder, ordered by code."""
    return rules_in(__name__, Rule)


def may_stop(data: bytes) -> bool:
    """Whether a file of code may hold something that stops: most need not be parsed for it."""
    small = data.lower()
    return any(rule.may_concern(data, small) for rule in stop_rules())


def check_module(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """The findings of all of them in one file."""
    data = module.text.data
    small = data.lower()
    for rule in stop_rules():
        if rule.may_concern(data, small):
            yield from rule.check(module, style)
