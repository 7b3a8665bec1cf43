"""The files of a project that can be converted, and the sum of what was found in them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchport.convert.inspection import KEPT_FOR_NPU
from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.removed import read_versions
from torchport.results.conversion import OldCode, Summary, is_old_code
from torchport.source.kinds import kind_of
from torchport.source.project import display_name, is_foreign, is_python, iter_files
from torchport.source.settings import Settings


def list_convertible_files(root: Path, settings: Settings, apart_from: Path | None = None) -> list[tuple[Path, str]]:
    """Path and name in findings of every file at or below `root` that can be converted.

    Environments inside the project, links, whose target is converted where it is, and what the settings exclude are
    left out.
    """
    return [
        (path, display_name(path, root))
        for path in iter_files(root, apart_from=apart_from)
        if not is_foreign(path, root)
        and not settings.leaves_out(path)
        and (path == root or not path.is_symlink())
        and (kind_of(display_name(path, root)) is not None or is_python(path) or path.is_dir())
    ]


def summarize_findings(findings: Iterable[Finding], file_count: int) -> Summary:
    """Counts for people and for the next step."""
    everything = list(findings)
    old = [finding for finding in everything if is_old_code(finding.code) and finding.severity is not Severity.INFO]
    found = [one for one in everything if not is_part(one) and not is_old_code(one.code)]
    return Summary(
        files=file_count,
        automatic=sum(1 for finding in found if finding.fix and finding.safety is Safety.SAFE),
        review=sum(1 for finding in found if finding.fix and finding.safety is Safety.REVIEW),
        decisions=sum(map(needs_decision, found)),
        blockers=sum(1 for finding in found if not finding.fix and finding.severity is Severity.ERROR),
        rules=dict(sorted(Counter(one.code for one in everything if not is_part(one)).items())),
        npu_path=tuple(_list_kept_for_npu(everything)),
        old=OldCode(
            changes=sum(1 for finding in old if finding.fix),
            left=sum(1 for finding in old if not finding.fix),
            unimportable=_list_unimportable(old),
            torch=read_versions()["torch"] if old else "",
        ),
    )


def _list_unimportable(old: Iterable[Finding]) -> tuple[str, ...]:
    """The first place of each file at which an import of it stops."""
    first: dict[str, int] = {}
    for finding in old:
        if finding.evidence.get("stops") == "import" and finding.location is not None:
            where = finding.location
            first[where.path] = min(where.line, first.get(where.path, where.line))
    return tuple(f"{path}:{line}" for path, line in first.items())


def _list_kept_for_npu(findings: Iterable[Finding]) -> Iterator[str]:
    files: set[str] = set()
    for finding in findings:
        where = finding.location
        if where is not None and finding.evidence.get("kept") == KEPT_FOR_NPU and where.path not in files:
            files.add(where.path)
            yield f"{where.path}:{where.line}"


def is_part(finding: Finding) -> bool:
    """Whether another finding speaks for it: a kernel of a plugin, say."""
    return "part_of" in finding.evidence


# Notes for those who ask for everything: words that are no devices.
_DETAILS = ("TP110",)
# Changes that are the same in every file: that torch_npu is imported, and packages that work.
_SAID_ONCE = ("TP001", "TP604")


def for_people(findings: Iterable[Finding], *, all_: bool = False) -> tuple[Finding, ...]:
    """The findings as a person reads them: what is only good to know is said of its first place, with the number of
    the others, and not at all where it is a detail. What needs a review, a decision or blocks the port stays at each of
    its places. `all_` leaves everything as it is.
    """
    found = list(findings)
    if all_:
        return tuple(found)
    found = [one for one in found if not (_is_note(one) and one.code in _DETAILS) and not is_part(one)]
    same: dict[tuple[str, str], list[Finding]] = {}
    for one in found:
        to_review = one.fix and one.safety is Safety.REVIEW
        once = one.code in _SAID_ONCE and one.severity is Severity.INFO and not to_review
        if once or _is_note(one):
            same.setdefault((one.code, one.message), []).append(one)
    left_out = {id(one) for some in same.values() for one in some[1:]}
    others = {id(some[0]): _others(some) for some in same.values()}
    return tuple(
        dataclasses.replace(one, message=one.message + others.get(id(one), ""))
        for one in found
        if id(one) not in left_out
    )


def _is_note(finding: Finding) -> bool:
    return finding.severity is Severity.INFO and not finding.fix and finding.location is not None


def _others(same: list[Finding]) -> str:
    """In how many places beside the first the same is said, as an addition to what it says."""
    files = len({one.location.path for one in same if one.location is not None}) - 1
    if files > 0:
        return f" (and in {format_count(files, 'more file')})"
    return f" (and at {format_count(len(same) - 1, 'more place')})" if len(same) > 1 else ""


def format_count(number: int, noun: str) -> str:
    """ "1 file", "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def needs_decision(finding: Finding) -> bool:
    """Whether a person has to do something that torchport does not."""
    return not finding.fix and finding.severity is Severity.WARNING
