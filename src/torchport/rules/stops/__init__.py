"""Rules for what stops on torch_npu although nothing in it names CUDA. None has a fix.

Each states what the unmodified torch_npu was seen to refuse, or to compute otherwise; `tests/vnpu/test_what_stops.py`
tries each of them there, with what works beside it. One rule is one module here with a `RULE`, found by scanning, and
with the `WORDS` of which a file that has something for it holds one.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from torchport.findings import Finding
from torchport.rules import Rule, Style
from torchport.source.module import Module


@functools.cache
def stop_rules() -> tuple[Rule, ...]:
    """All rules of this folder, ordered by code."""
    return tuple(module.RULE for module in _modules())


def may_stop(data: bytes) -> bool:
    """Whether a file of code may hold something that stops: most need not be parsed for it."""
    return next(_asked(data), None) is not None


def _asked(data: bytes) -> Iterator[Any]:
    """The modules of the rules that may have something to say of a file."""
    return (entry for entry in _modules() if any(word in data for word in entry.WORDS))


@functools.cache
def _modules() -> tuple[Any, ...]:
    entries = [
        importlib.import_module(f"{__name__}.{entry.name}") for entry in pkgutil.iter_modules(__path__)
    ]
    rules = [entry for entry in entries if hasattr(entry, "RULE")]
    return tuple(sorted(rules, key=lambda entry: str(entry.RULE.code)))


def check(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """The findings of all of them in one file."""
    for entry in _asked(module.text.data):
        yield from entry.RULE.check(module, style)
