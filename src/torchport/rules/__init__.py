"""Rules: what they are, and how they are found.

One rule is one module in this folder with a `RULE`, found by scanning. A rule looks at one parsed file and yields
findings; it never writes, prints or logs. Its `rewrites` and `unchanged` are its documentation and its tests: every
rule has at least as many texts it leaves alone as texts it rewrites.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.source.module import Module


class Style(enum.StrEnum):
    """What converted code looks like."""

    NPU = "npu"  # explicit: torch.npu, "npu:0"
    AGNOSTIC = "agnostic"  # runs on CUDA as before: torch.accelerator


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What one rule does, why, and the function that does it.

    `after` makes a rule look at the file only when another rule has written something that matches it, or where
    `alone` finds that it has to. `style` is the one in which `rewrites` hold.
    """

    code: str
    title: str
    safety: Safety
    severity: Severity
    why: str
    reference: str
    check: Callable[[Module, Style], Iterable[Finding]]
    rewrites: tuple[tuple[str, str], ...]
    unchanged: tuple[str, ...]
    after: re.Pattern[bytes] | None = None
    alone: Callable[[Module], bool] = lambda module: False
    style: Style = Style.NPU

    def finding(
        self,
        module: Module,
        node: ast.expr | ast.stmt,
        message: str,
        edits: Iterable[Edit | None] = (),
        *,
        hint: str = "",
        safety: Safety | None = None,
        severity: Severity | None = None,
        link: str = "",
        evidence: Mapping[str, str] | None = None,
    ) -> Finding:
        """A finding of this rule at `node`.

        A None among the edits, a place that cannot be edited, makes it a report that a person has to act on.
        """
        start, end = module.text.span(node)
        wanted = list(edits)
        fix = tuple(edit for edit in wanted if edit is not None)
        if len(fix) < len(wanted):
            fix, safety = (), Safety.REPORT
            severity = Severity.WARNING if severity is None and self.severity is Severity.INFO else severity
            hint = (
                hint
                or "The text here cannot be edited in place (an f-string or a joined literal): change it by hand."
            )
        return Finding(
            code=self.code,
            severity=severity or self.severity,
            safety=safety or self.safety,
            location=module.text.location(start, end),
            message=message,
            hint=hint,
            evidence={"source": module.text.slice(start, min(end, start + 400)), **(evidence or {})},
            fix=fix,
            links=(link or self.reference,),
        )


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, ordered by code, those with `after` at the end."""
    found = []
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if isinstance(rule := getattr(module, "RULE", None), Rule):
            found.append(rule)
    return tuple(sorted(found, key=lambda rule: (rule.after is not None, rule.code)))
