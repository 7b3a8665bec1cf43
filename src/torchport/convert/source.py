"""Convert one file."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import warnings
from collections.abc import Iterable

from torchport.convert.inspection import inspect_source, make_bug_finding
from torchport.findings import Edit, Finding, Safety
from torchport.rules import Style
from torchport.source.definitions import Definitions
from torchport.source.edits import invert_edits, splice
from torchport.source.kinds import Kind, kind_of


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """The converted bytes, what was found, and the edits that led from the one to the other.

    `left` are the findings of the output: what a person still has to know about it.
    """

    output: bytes
    findings: tuple[Finding, ...]
    edits: tuple[Edit, ...] = ()
    left: tuple[Finding, ...] = ()


def convert_source(
    data: bytes,
    path: str,
    style: Style = Style.NPU,
    project: Definitions | None = None,
    ignore: frozenset[str] = frozenset(),
) -> Conversion:
    """Apply every safe and reviewable edit to one file, but for findings with codes in `ignore`.

    Everything outside the edits is identical, the output compiles if the input did, and converting it again changes
    nothing. Where one of these does not hold, the output is the input and a finding (TP903) says that it is our bug.
    Nothing is raised, whatever the bytes are.
    """
    findings = inspect_source(data, path, style, project, ignore)
    edits = collect_edits(findings)
    if not edits:
        return Conversion(data, findings, left=findings)
    problem = ""
    try:
        output = splice(data, edits)
        again = inspect_source(output, path, style, project, ignore)
        problem = problem_of(data, output, edits, path) or _not_idempotent(again)
    except ValueError as error:
        problem = str(error)
    if problem:
        left = tuple(dataclasses.replace(finding, fix=(), safety=Safety.REPORT) for finding in findings)
        return Conversion(data, (make_bug_finding(path, problem), *left), left=left)
    return Conversion(output, findings, edits, again)


def collect_edits(findings: Iterable[Finding]) -> tuple[Edit, ...]:
    """The edits that are made without asking."""
    return tuple(edit for finding in findings if finding.safety is not Safety.REPORT for edit in finding.fix)


def problem_of(data: bytes, output: bytes, edits: tuple[Edit, ...], path: str) -> str:
    """What is wrong with the output; empty if nothing is."""
    if splice(output, invert_edits(data, edits)) != data:
        return "the conversion cannot be taken back to the original"
    if (broken := _load_error(output, path)) and not _load_error(data, path):
        return f"the converted file cannot be read any more: {broken}"
    return ""


def _not_idempotent(again: tuple[Finding, ...]) -> str:
    for finding in again:
        if finding.fix:
            where = finding.location
            return f"converting the output again would change it: {finding.code} at line {where.line if where else 0}"
    return ""


def _load_error(data: bytes, path: str) -> str:
    """Why the file cannot be compiled or parsed; empty if it can, or if its kind has no parser here."""
    kind = kind_of(path) or Kind.PYTHON
    try:
        if kind in (Kind.JSON, Kind.NOTEBOOK):
            json.loads(data)
        elif kind is Kind.SETTINGS and path.endswith(".toml"):
            tomllib.loads(data.decode())
        elif kind is Kind.PYTHON:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes and the like are the script's own business
                compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""
