"""Rules for what stops on torch_npu although nothing in it names CUDA; `analyze` runs them.

Each states what the unmodified torch_npu was seen to refuse, or to compute otherwise; `tests/vnpu/test_what_stops.py`
tries each of them there, with what works beside it. One rule is one module here with a `RULE`, found by scanning.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator

from torchport.findings import Finding
from torchport.rules import Rule, Style
from torchport.source.module import Module


@functools.cache
def stop_rules() -> tuple[Rule, ...]:
    """All rules of this folder, ordered by code."""
    modules = [
        importlib.import_module(f"{__name__}.{entry.name}") for entry in pkgutil.iter_modules(__path__)
    ]
    return tuple(
        sorted((module.RULE for module in modules if hasattr(module, "RULE")), key=lambda rule: rule.code)
    )


def check(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """The findings of all of them in one file."""
    for rule in stop_rules():
        yield from rule.check(module, style)
