"""The rules for Python on a piece of code that stands inside something else: a string, a value of a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Set

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Style, list_rules
from torchport.source.definitions import Definitions
from torchport.source.module import Module
from torchport.source.text import SourceError


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A finding in a piece of code, at the byte range from `start` to `end` of it, and its edits there: none if the
    finding is only a report."""

    finding: Finding
    start: int
    end: int
    edits: tuple[Edit, ...]


def inspect_piece(
    path: str, frame: str, code: bytes, style: Style, *, project: Definitions | None = None, without: Set[str]
) -> list[Piece] | None:
    """The findings of the rules, except the codes `without`, in `code` behind the lines `frame`, which are ASCII.

    Notes that edit nothing are left out. None if the two together are no Python.
    """
    try:
        module = Module(path, frame.encode() + code, project)
    except (SourceError, RecursionError, MemoryError):
        return None
    rules = (rule for rule in list_rules() if rule.after is None and rule.code not in without)
    return list(_place(module, len(frame), (one for rule in rules for one in rule.check(module, style))))


def _place(module: Module, shift: int, findings: Iterator[Finding]) -> Iterator[Piece]:
    for one in findings:
        where = one.location
        if where is None or (one.severity is Severity.INFO and not one.fix):
            continue
        start = _to_offset(module, where.line, where.column) - shift
        end = _to_offset(module, where.end_line, where.end_column) - shift
        if start < 0:  # of the frame
            continue
        edits = one.fix if one.safety is not Safety.REPORT else ()
        moved = tuple(Edit(edit.start - shift, edit.end - shift, edit.replacement) for edit in edits)
        yield Piece(one, start, end, moved)


def _to_offset(module: Module, line: int, column: int) -> int:
    """The byte offset of a place, both counted from 1, columns in characters."""
    text = module.text
    return text.position_to_offset(line, 0) + len(text.lines[line - 1][: column - 1].encode(text.encoding))
