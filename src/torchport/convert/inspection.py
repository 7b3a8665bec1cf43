"""Run all rules over one file: whatever the file holds, the answer is findings."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

from torchport.findings import Edit, Finding, Location, Safety, Severity
from torchport.knowledge.libraries import libraries
from torchport.rules import Rule, Style, rules
from torchport.source.module import Module
from torchport.source.text import SourceError

LARGEST = 8 * 2**20  # bytes; the largest file of torch itself has 1.4 MB
_IGNORE = re.compile(r"#\s*torchport:\s*ignore(?:\[([A-Z0-9,\s]+)\])?")


def inspect_source(data: bytes, path: str, style: Style = Style.NPU) -> tuple[Finding, ...]:
    """All findings of one Python file in the order of their places.

    The edits of the findings do not overlap. A file that cannot be read or parsed, and a rule that fails, are
    findings too (TP901 to TP903); nothing is raised.
    """
    if not _of_interest().search(data):
        return ()
    if len(data) > LARGEST:
        return (
            about_file(
                "TP904", path, f"the file is larger than {LARGEST // 2**20} MiB", "Convert it by hand."
            ),
        )
    try:
        module = Module(path, data)
        return _in_order(_inspect(module, style))
    except SourceError as error:
        return (about_file(error.code, path, error.message, line=error.line, column=error.column),)
    except (RecursionError, MemoryError):
        return (about_file("TP901", path, "the code is nested too deeply to be analysed"),)


@functools.cache
def _of_interest() -> re.Pattern[bytes]:
    """A file in which this finds nothing holds nothing that a rule looks for."""
    packages = "|".join(re.escape(name) for name in libraries())
    imported = rf"^[ \t]*(?:import|from)[ \t]+(?:{packages})\b|^[ \t]*import\b.*,[ \t]*(?:{packages})\b"
    words = r"(?i:cuda|nccl|nvidia|nvtx)|cpp_extension|DataParallel"
    return re.compile(f"{words}|{imported}".encode(), re.MULTILINE)


def _inspect(module: Module, style: Style) -> list[Finding]:
    found: list[Finding] = []
    for rule in rules():
        if rule.last and not any(finding.fix for finding in found):
            continue
        found += _run(rule, module, style)
        if not rule.last:
            found = [finding for finding in found if not _is_ignored(module, finding)]
    return list(_without_overlaps(found))


def _run(rule: Rule, module: Module, style: Style) -> list[Finding]:
    try:
        return list(rule.check(module, style))
    except RecursionError:
        raise
    except Exception as error:  # one rule's bug must not hide what the others have to say
        message = f"rule {rule.code} failed: {type(error).__name__}: {error}"
        return [bug(module.text.path, message)]


def bug(path: str, message: str) -> Finding:
    """The finding for a mistake of ours: the file is left alone."""
    hint = "This is a bug in torchport; the file is left as it is. Please report it with the file."
    return Finding("TP903", Severity.ERROR, Safety.REPORT, Location(path, 1, 1, 1, 1), message, hint)


def about_file(
    code: str,
    path: str,
    message: str,
    hint: str = "Nothing is known about what it needs.",
    line: int = 1,
    column: int = 1,
) -> Finding:
    """The finding for a file that cannot be converted as a whole."""
    place = Location(path, line, column, line, column)
    return Finding(code, Severity.ERROR, Safety.REPORT, place, message, f"The file is left as it is. {hint}")


def _is_ignored(module: Module, finding: Finding) -> bool:
    """Whether the line ends with `# torchport: ignore` or `# torchport: ignore[TP101]`."""
    if finding.location is None or not module.text.lines:
        return False
    found = _IGNORE.search(module.text.lines[finding.location.line - 1])
    if found is None:
        return False
    return found[1] is None or finding.code in {code.strip() for code in found[1].split(",")}


def _without_overlaps(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings whose edits fit together; where two claim the same bytes, the one that changes more stays."""
    taken: list[Edit] = []
    for finding in sorted(findings, key=_extent, reverse=True):
        if not any(_collide(edit, other) for edit in finding.fix for other in taken):
            taken += finding.fix
            yield finding


def _extent(finding: Finding) -> int:
    return sum(edit.end - edit.start for edit in finding.fix)


def _collide(one: Edit, other: Edit) -> bool:
    return (one.start < other.end and other.start < one.end) or (one.start, one.end) == (
        other.start,
        other.end,
    )


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    def place(finding: Finding) -> tuple[int, int, str]:
        where = finding.location
        return (where.line, where.column, finding.code) if where else (0, 0, finding.code)

    return tuple(sorted(findings, key=place))
