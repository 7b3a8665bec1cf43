"""Rules for files that are not Python: launch scripts, configurations, package lists, CUDA sources.

One rule is one module in this folder with a `RULE`, found by scanning, like the rules for Python. It sees the text
line by line; there is no syntax tree, so a rule matches whole words in places whose form says what they are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Style, rules_in
from torchport.source.kinds import Kind
from torchport.source.text import SourceText

LONGEST_LINE = 5_000


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One line: its text without the line end, and the byte offset of each of its characters."""

    text: str
    start: int
    encoding: str

    def column_to_offset(self, column: int) -> int:
        """The byte offset in the file of the character at `column`, counted from 0."""
        return self.start + len(self.text[:column].encode(self.encoding))


class TextFile:
    """A file of one kind, decoded. Raises SourceError where it is not text."""

    def __init__(self, path: str, data: bytes, kind: Kind) -> None:
        self.kind = kind
        self.text = SourceText(path, data)

    def iter_lines(self) -> Iterator[Line]:
        """All lines but those too long to be written by a person, such as data on one line."""
        start = len(self.text.data) - sum(len(line.encode(self.text.encoding)) for line in self.text.lines)
        for line in self.text.lines:
            if len(line) <= LONGEST_LINE:
                yield Line(line.rstrip("\r\n"), start, self.text.encoding)
            start += len(line.encode(self.text.encoding))


@dataclasses.dataclass(frozen=True, slots=True)
class FileRule:
    """A rule for files that are not Python, described as a Rule is.

    `rewrites` are (file name, before, after), `reports` and `ignores` (file name, text).
    """

    code: str
    title: str
    safety: Safety
    severity: Severity
    why: str
    reference: str
    kinds: frozenset[Kind]
    check: Callable[[TextFile, Style], Iterable[Finding]]
    rewrites: tuple[tuple[str, str, str], ...]
    reports: tuple[tuple[str, str], ...] = ()
    ignores: tuple[tuple[str, str], ...] = ()
    words: tuple[bytes, ...] | None = None  # as a Rule's
    words_of_kinds: Mapping[Kind, tuple[bytes, ...]] = dataclasses.field(default_factory=dict)  # in place of `words`

    def words_of(self, kind: Kind) -> tuple[bytes, ...] | None:
        """The words of which one has to be in a file of this kind; None for a rule that is asked about each."""
        return self.words_of_kinds.get(kind, self.words)

    def make_finding(
        self,
        file: TextFile,
        line: Line,
        columns: tuple[int, int],
        message: str,
        new: str | None = None,
        *,
        hint: str = "",
        severity: Severity | None = None,
        safety: Safety | None = None,
        source: str = "",
    ) -> Finding:
        """A finding about the columns [first, last) of a line; `new` replaces their text.

        `source` is what the finding is about where that is not the text of the columns.
        """
        start, end = line.column_to_offset(columns[0]), line.column_to_offset(columns[1])
        fix = () if new is None else (Edit(start, end, new.encode(line.encoding)),)
        return Finding(
            code=self.code,
            severity=severity or self.severity,
            safety=safety or (self.safety if fix else Safety.REPORT),
            location=file.text.to_location(start, end),
            message=message,
            hint=hint,
            evidence={"source": source or line.text[columns[0] : columns[1]]},
            fix=fix,
            links=(self.reference,),
        )


@functools.cache
def file_rules() -> tuple[FileRule, ...]:
    """All rules for files, ordered by code."""
    return rules_in(__name__, FileRule)
