"""Rules for what stops on torch_npu although nothing in it names CUDA. None has a fix.

Each states what the unmodified torch_npu was seen to refuse, or to compute otherwise; `tests/vnpu/test_what_stops.py`
tries each of them there, with what works beside it. One rule is one module here with a `RULE`, found by scanning, and
with the `WORDS` without which a file has nothing for it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from torchport.findings import Finding
from torchport.rules import Rule, Style
from torchport.source.module import Module


@functools.cache
def stop_rules() -> tuple[Rule, ...]:
    """All rules of this folder, ordered by code."""
    return tuple(sorted((module.RULE for module in _modules()), key=lambda rule: rule.code))


@functools.cache
def words() -> re.Pattern[bytes]:
    """A file of code in which this finds nothing holds nothing that stops: most need not be parsed for it."""
    return re.compile(b"|".join(module.WORDS for module in _modules()))


@functools.cache
def _modules() -> tuple[Any, ...]:
    entries = [
        importlib.import_module(f"{__name__}.{entry.name}") for entry in pkgutil.iter_modules(__path__)
    ]
    return tuple(entry for entry in entries if hasattr(entry, "RULE"))


def check(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """The findings of all of them in one file."""
    for rule in stop_rules():
        yield from rule.check(module, style)
