"""The files of a project that can be converted, and the sum of what was found in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchport.findings import Finding, Safety, Severity
from torchport.source.kinds import kind_of
from torchport.source.project import display_name, files, is_foreign, is_python


def sources(root: Path, apart_from: Path | None = None) -> list[tuple[Path, str]]:
    """Path and name in findings of every file at or below `root` that can be converted.

    Environments inside the project, and links, whose target is converted where it is, are left out.
    """
    return [
        (path, display_name(path, root))
        for path in files(root, apart_from=apart_from)
        if not is_foreign(path, root)
        and (path == root or not path.is_symlink())
        and (kind_of(path.name) is not None or is_python(path))
    ]


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
