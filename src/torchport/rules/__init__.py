"""Rules: what they are, and how they are found.

One rule is one module in this folder with a `RULE`, found by scanning. A rule looks at one parsed file and yields
findings; it never writes, prints or logs. Its `rewrites`, `reports` and `ignores` are its documentation and its tests:
every rule has a text that it rewrites or reports, and at least as many that it leaves as they are as it rewrites.
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
from typing import Protocol, TypeVar

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.source.module import Module

# Of CUDA's names each has one of these. In lower case, as all words of rules are: they are found in any case.
CUDA = (b"cuda", b"cudnn", b"nccl", b"nvidia", b"nvtx", b"nvml", b"nvcc", b"nsys")


class Style(enum.StrEnum):
    """What converted code looks like."""

    NPU = "npu"  # explicit: torch.npu, "npu:0"
    AGNOSTIC = "agnostic"  # runs on CUDA as before: torch.accelerator


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What one rule does, why, and the function that does it.

    `rewrites` are texts with their conversion. In each text of `reports` the rule has a finding and changes nothing; in
    the texts of `ignores` it has no finding.

    Most files are not parsed: a file is looked at if a rule may have something to say about it, which is so if one of
    its `words` (lower case) is in the file in any case, or if `mentions` finds something. A rule without `words` is
    asked about every file.

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
    reports: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    words: tuple[bytes, ...] | None = None
    mentions: Callable[[bytes], bool] = lambda data: False
    after: re.Pattern[bytes] | None = None
    alone: Callable[[Module], bool] = lambda module: False
    style: Style = Style.NPU

    def may_concern(self, data: bytes, small: bytes) -> bool:
        """Whether the rule may have something to say about a file; `small` is the file in lower case."""
        return self.words is None or any(word in small for word in self.words) or self.mentions(data)

    def make_finding(
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
                hint or "The text here cannot be edited in place (an f-string or a joined literal): change it by hand."
            )
        return Finding(
            code=self.code,
            severity=severity or self.severity,
            safety=safety or self.safety,
            location=module.text.to_location(start, end),
            message=message,
            hint=hint,
            evidence={"source": module.text.decode_range(start, min(end, start + 400)), **(evidence or {})},
            fix=fix,
            links=(link or self.reference,),
        )


class _Coded(Protocol):
    @property
    def code(self) -> str: ...


_R = TypeVar("_R", bound=_Coded)


def rules_in(package: str, kind: type[_R]) -> tuple[_R, ...]:
    """The `RULE` of each module in the folder of a package, ordered by code."""
    folder = importlib.import_module(package).__path__
    modules = [importlib.import_module(f"{package}.{entry.name}") for entry in pkgutil.iter_modules(folder)]
    found = [rule for module in modules if isinstance(rule := getattr(module, "RULE", None), kind)]
    return tuple(sorted(found, key=lambda rule: rule.code))


@functools.cache
def list_rules() -> tuple[Rule, ...]:
    """All rules, ordered by code, those with `after` at the end."""
    return tuple(sorted(rules_in(__name__, Rule), key=lambda rule: rule.after is not None))
