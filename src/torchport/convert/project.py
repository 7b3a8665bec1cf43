"""The Python files of a project, and the sum of what was found in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torchport.findings import Finding, Location, Safety, Severity
from torchport.source.project import display_name, files, is_foreign, is_python


def python_files(
    root: Path, findings: list[Finding], apart_from: Path | None = None
) -> Iterator[tuple[Path, str, bytes]]:
    """Path, name in findings and bytes of every Python file at or below `root`.

    Environments inside the project are left out. A file that cannot be read becomes a finding (TP900) in `findings`.
    """
    for path in files(root, apart_from=apart_from):
        if is_foreign(path, root) or (path.is_symlink() and path != root):
            continue  # what a link leads to is converted where it is
        name = display_name(path, root)
        try:
            if is_python(path) and path.is_file():
                yield path, name, path.read_bytes()
        except OSError as error:
            message = f"the file cannot be read: {error.strerror}"
            place = Location(name, 1, 1, 1, 1)
            hint = "Nothing is known about what it needs."
            findings.append(Finding("TP900", Severity.ERROR, Safety.REPORT, place, message, hint))


def summary(findings: Iterable[Finding], file_count: int) -> dict[str, Any]:
    """Counts for people and for the next step."""
    found = list(findings)
    return {
        "files": file_count,
        "automatic": sum(1 for finding in found if finding.fix and finding.safety is Safety.SAFE),
        "review": sum(1 for finding in found if finding.fix and finding.safety is Safety.REVIEW),
        "decisions": sum(1 for finding in found if needs_decision(finding)),
        "blockers": sum(1 for finding in found if not finding.fix and finding.severity is Severity.ERROR),
        "rules": dict(sorted(Counter(finding.code for finding in found).items())),
    }


def needs_decision(finding: Finding) -> bool:
    """Whether a person has to do something that torchport does not."""
    return not finding.fix and finding.severity is Severity.WARNING
