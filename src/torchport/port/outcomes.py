"""Judge a script's outcomes: the files that it leaves and the numbers that it prints.

Differences between the runs are measured by the original: it runs once more to its end, with rounding noise, from the
states from which the port went on. Its own files and numbers differ from the first run's by rounding, and by all that
differs from run to run, such as times; the port's may be some times as far away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchport.compare.tolerance import PRINTED_TIMES, TOLERANCES
from torchport.findings import Finding, Safety, Severity
from torchport.port import controls, runs
from torchport.port.left import CLOSE, CLOSEST, JUDGED, TOLERANCE, Again, compare_files
from torchport.port.plan import NPU, REFERENCE, Plan
from torchport.port.printed import PRINTED, compare_printed, find_unsteady_words, is_among
from torchport.port.progress import Progress
from torchport.record import recording
from torchport.results.comparison import Comparison
from torchport.results.port import FileRow

DIFFERS = "TP348"
KINDS = JUDGED | {PRINTED}
DRAWS = (1, 2, 3)  # of noise
SMALL = 0.05  # relative: a larger difference is not put down to noise that one draw has missed
AGAIN = "again"  # below compare/, the original's run to its end


def compare_outcomes(
    reference: Path,
    port: Path,
    tolerance: float = TOLERANCE,
    again: Path | None = None,
    times: float = 1.0,
    points: float = 0.0,
) -> list[FileRow]:
    """Compare the files and the printed numbers of two runs, by their folders; numbers may differ by `tolerance`.
    `again` is the folder of another run of the original: a number that is at most `times` as far away as that run's
    counts as equal, and so does a share of samples that is at most `points` of a hundred away."""
    measured = None if again is None else Again(again / runs.FILES, times, points)
    rows = compare_files(reference / runs.FILES, port / runs.FILES, measured, tolerance)
    printed = compare_printed(
        _read_output(reference),
        _read_output(port),
        tolerance,
        None if again is None else _read_output(again),
        times,
        points,
    )
    return [*rows, *([] if printed is None else [printed])]


def choose_tolerance(comparison: Comparison) -> float:
    """By how much numbers may differ whatever the original does when it runs again: less where a control run in float32
    shows that rounding moves the training little, by the last bounds of the losses. A share of samples hardly changes
    there: no score is on an edge."""
    yardstick = comparison.yardstick
    if yardstick is None or yardstick.chaotic is not None or comparison.forced or comparison.chance:
        return TOLERANCE
    ends = [curve.allowed[-1] for curve in comparison.curves if curve.allowed]
    if comparison.tolerance["dtype"] != "float32" or not ends:
        return TOLERANCE
    return min(CLOSE, max(CLOSEST, PRINTED_TIMES * max(ends)))


def judge_outcomes(
    plan: Plan,
    folder: Path,
    rows: Sequence[FileRow],
    comparison: Comparison,
    progress: Progress,
    formats: Mapping[str, str],
) -> list[FileRow]:
    """The rows, those that differ judged by another run of the original, in a folder below `folder`; `formats` are
    those in which the port's device computes (`roundoff`).

    `equal` is None for what cannot be judged: if the runs draw numbers of their own, and if that run fails."""
    if not any(row.equal is False and row.kind in KINDS for row in rows):
        return list(rows)
    given = comparison.tolerance["given"]
    if given is not None:
        return [_leave_open(row, f"a tolerance of {given:g} was given") for row in rows]
    if comparison.chance:
        return [_leave_open(row, "the runs draw numbers of their own") for row in rows]
    progress.note("files or printed numbers differ: the original runs once more, to measure what rounding does to them")
    allowed = TOLERANCES[comparison.tolerance["dtype"]]
    points = allowed.points if allowed.run is None else 0.0  # as of what is printed last
    folders = plan.kept_in(REFERENCE), plan.kept_in(NPU)
    found = list(rows)
    for draw in DRAWS:
        aside = folder / f"{AGAIN}-{draw}"
        aside.mkdir()
        if controls.run_to_the_end(plan, aside, progress, formats, draw).status:
            return [_leave_open(row, "the original, run again, failed") for row in found]
        rows = compare_outcomes(*folders, choose_tolerance(comparison), aside, allowed.spread, points)
        measured = {(row.kind, row.name): row for row in rows}
        found = [row if row.equal else measured.get((row.kind, row.name), row) for row in found]
        # A score of few samples is moved by one of them, which a single draw of noise may not have met.
        if not any(row.equal is False and row.kind in KINDS and (row.difference or 1.0) <= SMALL for row in found):
            break
    if any(row.equal is False and row.kind in KINDS for row in found):
        return _leave_unsteady(plan, folder, found, progress)
    return found


def _leave_unsteady(plan: Plan, folder: Path, found: list[FileRow], progress: Progress) -> list[FileRow]:
    """The rows, open if the original itself, run again as it was, writes or prints other numbers: it draws them where
    no seed reaches, as an environment that is reset without one."""
    progress.note("a difference is left: the original runs once more as it was, to see whether it repeats itself")
    aside = folder / f"{AGAIN}-exact"
    aside.mkdir()
    if controls.run_to_the_end(plan, aside, progress, {}, 0).status:
        return found
    kept = plan.kept_in(REFERENCE)
    unsteady = {
        row.name for row in compare_files(kept / runs.FILES, aside / runs.FILES, None, CLOSEST) if not row.equal
    }
    words = find_unsteady_words(_read_output(kept), _read_output(aside))
    why = "the original, run again as it was, has other numbers there itself"
    return [
        _leave_open(row, why) if row.name in unsteady or (row.kind == PRINTED and is_among(row.note, words)) else row
        for row in found
    ]


def report_outcomes(rows: Iterable[FileRow], *, alone: bool, died: bool = False) -> Iterator[Finding]:
    """Report the rows that differ by more than rounding explains; with `alone` files are all that there is to judge. Of
    a port that `died` files are not missed."""
    for row in rows:
        if row.equal is False and (row.port or not died):
            what = "what is printed differs" if row.kind == PRINTED else f"the file {row.name} differs"
            yield Finding(
                DIFFERS,
                Severity.ERROR if alone or row.kind in KINDS else Severity.INFO,
                Safety.REPORT,
                None,
                f"{what}: {row.note or f'{row.port} against {row.reference}'}",
                f"The runs' files are in OUT/{REFERENCE}/files and OUT/{NPU}/files, what they print in stdout.txt.",
            )


def _leave_open(row: FileRow, why: str) -> FileRow:
    if row.equal is not False or row.kind not in KINDS:
        return row
    return dataclasses.replace(row, equal=None, note=f"{row.note}; {why}" if row.note else why)


def _read_output(folder: Path) -> str:
    path = folder / recording.STDOUT
    return path.read_text("utf-8", "replace") if path.exists() else ""
