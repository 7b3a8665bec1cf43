"""The files of a project that can be converted, and the sum of what was found in them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchport.findings import Finding, Safety, Severity
from torchport.source.kinds import kind_of
from torchport.source.project import display_name, files, is_foreign, is_python
from torchport.source.settings import Settings


def sources(root: Path, settings: Settings, apart_from: Path | None = None) -> list[tuple[Path, str]]:
    """Path and name in findings of every file at or below `root` that can be converted.

    Environments inside the project, links, whose target is converted where it is, and what the settings exclude are
    left out.
    """
    return [
        (path, display_name(path, root))
        for path in files(root, apart_from=apart_from)
        if not is_foreign(path, root)
        and not settings.leaves_out(path)
        and (path == root or not path.is_symlink())
        and (kind_of(path.name) is not None or is_python(path) or path.is_dir())
    ]


# Hours of a person for one finding, from and to: a rule of thumb, to be read as an order of magnitude. Findings of one
# rule with one message are one piece of work, however often they occur.
_HOURS = {"review": (0.05, 0.1), "decisions": (0.2, 0.5), "blockers": (2.0, 16.0)}


def summary(findings: Iterable[Finding], file_count: int) -> dict[str, Any]:
    """Counts for people and for the next step, and an estimate of the work that is left."""
    found = list(findings)
    left = {
        "review": [finding for finding in found if finding.fix and finding.safety is Safety.REVIEW],
        "decisions": [finding for finding in found if needs_decision(finding)],
        "blockers": [finding for finding in found if not finding.fix and finding.severity is Severity.ERROR],
    }
    pieces = {kind: len({(one.code, one.message) for one in some}) for kind, some in left.items()}
    return {
        "files": file_count,
        "automatic": sum(1 for finding in found if finding.fix and finding.safety is Safety.SAFE),
        **{kind: len(some) for kind, some in left.items()},
        "effort_hours": [
            round(sum(_HOURS[kind][end] * pieces[kind] for kind in pieces), 1) for end in (0, 1)
        ],
        "rules": dict(sorted(Counter(finding.code for finding in found).items())),
    }


# What is the same wherever it is said: that torch_npu is imported, and notes on a package that works.
_SAID_ONCE = ("TP001", "TP604")


def said_once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings for people: notes that say the same of many files are said of the first, with the number of files.

    What needs a review, a decision or blocks the port stays at each of its places.
    """
    found = list(findings)
    same: dict[tuple[str, str], list[Finding]] = {}
    for one in found:
        to_review = one.fix and one.safety is Safety.REVIEW
        if one.code in _SAID_ONCE and one.severity is Severity.INFO and not to_review:
            same.setdefault((one.code, one.message), []).append(one)
    left_out = {id(one) for some in same.values() for one in some[1:]}
    files = {
        id(some[0]): len({one.location.path for one in some if one.location is not None}) - 1
        for some in same.values()
    }
    return tuple(
        dataclasses.replace(one, message=f"{one.message} (and in {counted(files[id(one)], 'more file')})")
        if files.get(id(one))
        else one
        for one in found
        if id(one) not in left_out
    )


def counted(number: int, noun: str) -> str:
    """ "1 file", "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def needs_decision(finding: Finding) -> bool:
    """Whether a person has to do something that torchport does not."""
    return not finding.fix and finding.severity is Severity.WARNING
