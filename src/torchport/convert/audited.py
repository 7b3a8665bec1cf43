"""What a run saw that the conversion did not: lines of an audit file, held against the findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchport.audit import Event, Kind
from torchport.convert.project import summarize_findings
from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.source.project import display_name
from torchport.source.settings import settings_of

UNSEEN, FALLBACK, UNSUPPORTED = "TP331", "TP332", "TP333"


def with_audit(result: Result, events: Iterable[Event], root: Path) -> Result:
    """`result` of a conversion of `root` with a finding for each event in its files that the conversion leaves.

    A redirected call is left where no edit touches its line: its name is made up at run time (`getattr`), or hidden in
    code that static analysis does not look into. A device name (`x.to(device)`) counts only where the line spells it
    out, as it comes from another line otherwise, which has its own edit.
    """
    edited = {
        (finding.location.path, line)
        for finding in result.findings
        if finding.location is not None and (finding.fix or finding.severity is not Severity.INFO)
        for line in range(finding.location.line, finding.location.end_line + 1)
    }
    settings = settings_of(root)
    found = [
        finding
        for event in events
        if not settings.leaves_out(Path(event.file))
        for finding in _finding(event, root, edited)
        if finding.code not in settings.ignore
    ]
    findings = (*result.findings, *found)
    data = {**result.data, "summary": summarize_findings(findings, result.data["summary"].files)}
    return dataclasses.replace(result, findings=findings, data=data)


def _finding(event: Event, root: Path, edited: set[tuple[str, int]]) -> Iterator[Finding]:
    path = Path(event.file)
    top = root.resolve()
    if not event.line or not (path.resolve() == top or top in path.resolve().parents):
        return
    name = display_name(path.resolve(), top)
    place = Location(name, event.line, 1, event.line, 1)
    times = f"{event.count} times" if event.count > 1 else "once"
    if event.kind is Kind.REDIRECTED:
        function, quote, device = event.original.partition('("')
        if (name, event.line) in edited or (quote and device[:-2] not in _line(path, event.line)):
            return
        yield Finding(
            UNSEEN,
            Severity.WARNING,
            Safety.REPORT,
            place,
            f"this line used {event.original} when it ran ({times}), and is not converted",
            hint=f"Write {event.replacement} instead of what leads to {function}.",
        )
    elif event.kind is Kind.FALLBACK:
        yield Finding(
            FALLBACK,
            Severity.INFO,
            Safety.REPORT,
            place,
            f"{event.original} ran on the CPU {times}, moving {event.bytes / 1e6:.1f} MB there",
            hint="In a loop this is slow: use an operator that the NPU has, or move that part to the CPU altogether.",
        )
    elif (name, event.line) not in edited:
        yield Finding(
            UNSUPPORTED,
            Severity.WARNING,
            Safety.REPORT,
            place,
            f"this line used {event.original} when it ran, which the NPU does not have",
            hint=f"{event.replacement[:1].upper()}{event.replacement[1:]}.",
        )


def _line(path: Path, number: int) -> str:
    lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    return lines[number - 1] if number <= len(lines) else ""
