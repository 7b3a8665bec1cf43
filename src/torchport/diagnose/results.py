"""What is found in logs, as findings."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from torchport.diagnose.devices import explain_taken_device
from torchport.diagnose.judging import Judgement, judge_events
from torchport.diagnose.logs import BELONGS, Event, Log, scan_log
from torchport.diagnose.quoting import PYTHON, kind_of
from torchport.diagnose.reading import NotTextError
from torchport.errors import TorchportError
from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.knowledge.errors import Role, Row, load_error_rows, official

CAUSE, FOLLOWS, HARMLESS, UNKNOWN, UNREAD = "TP801", "TP802", "TP803", "TP804", "TP805"
LIMIT = 1 << 30  # bytes of a file: an endless pipe has an end
FILES = 4096  # of a folder
PROOF = 3  # lines
_LETTERS = re.compile(r"[A-Za-z_]{3,}")
_IN_ALL = {"error", "runtimeerror", "failed", "python", "the", "for", "with", "and", "not", "was"}  # say nothing
_NEAR = 0.2  # share of words in common below which the nearest row is far
_ALL_LOGS = "torchport diagnose FOLDER_OF_ALL_LOGS"  # what a row asks for where one rank alone has spoken
_BLOCKING = "ASCEND_LAUNCH_BLOCKING=1 torchport run SCRIPT"  # and what is left when all have


def diagnose_logs(path: str, stdin: BinaryIO | None, limit: int = LIMIT) -> Result:
    """What the log `path` says: a file, a folder of the logs of all ranks, or "-" for `stdin`.

    At most `limit` bytes of each file are read. `data["answer"]` is "cause", "unknown" (it failed, and nothing is known
    about why) or "clean". Raises TorchportError for a file that is missing, cannot be read or is no text.
    """
    if path == "-":
        if stdin is None:
            raise TorchportError("there is no stdin to read", hint="Give a log file.")
        return _result("-", [_scanned("stdin", stdin, limit)], [])
    target = Path(path)
    if target.is_dir():
        return _folder(target, limit)
    if (kind := kind_of(target)) and target.exists():
        hint = f"Give what a run has printed. `torchport diagnose - < {path}` reads it all the same."
        if kind == PYTHON:
            hint = f"`torchport run {path}` runs it and says why it fails; or give what it has printed."
        raise TorchportError(f"{path} is {kind}, no log", hint=hint)
    try:
        with open(target, "rb", buffering=0) as stream:
            return _result(path, [_scanned(path, stream, limit)], [])
    except OSError as error:
        raise TorchportError(
            f"cannot read {path}: {error.strerror}", hint="Give a log file, a folder of logs, or - for stdin."
        ) from error


def diagnose_text(text: str, name: str = "output") -> Result:
    """The same of a text, such as what a script has printed."""
    return _result(name, [scan_log(io.BytesIO(text.encode("utf-8", "replace")), name, LIMIT)], [])


def _scanned(name: str, stream: BinaryIO, limit: int) -> Log:
    try:
        return scan_log(stream, name, limit)
    except NotTextError as error:
        raise TorchportError(
            f"{name} cannot be diagnosed: {error}",
            hint="Give the text that the script printed: `python train.py > log.txt 2>&1`.",
        ) from error


def _folder(folder: Path, limit: int) -> Result:
    """All regular files below; what cannot be read, and what is no log, is said and left out."""
    logs, unread = [], []
    found = sorted(os.path.join(where, name) for where, _, files in os.walk(folder) for name in files)
    names = [name for name in found if not kind_of(PurePath(name))]
    for name in names[:FILES]:
        try:
            if not stat.S_ISREG(os.stat(name).st_mode):
                continue
            with open(name, "rb", buffering=0) as stream:
                logs.append(scan_log(stream, os.path.relpath(name, folder), limit))
        except (OSError, NotTextError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            text = f"{os.path.relpath(name, folder)} was not read: {why}"
            unread.append(Finding(UNREAD, Severity.INFO, Safety.REPORT, None, text))
    if others := len(found) - len(names):
        text = f"{others} of {len(found)} files were not read: they are sources, documents or configurations"
        unread.append(Finding(UNREAD, Severity.INFO, Safety.REPORT, None, text))
    if not logs:
        raise TorchportError(f"{folder} has no log that can be read", hint="Give the folder of the ranks' logs.")
    return _result(str(folder), logs, unread)


def _result(path: str, logs: Sequence[Log], unread: Iterable[Finding]) -> Result:
    events: Sequence[Event] = [event for log in logs for event in log.events]
    judgement = judge_events(events)
    found: list[Finding] = []
    answer = "clean"
    if judgement is not None:
        judgement, events = explain_taken_device(judgement, events)
        answer = "unknown" if judgement.first.row.role is Role.EFFECT else "cause"
        found += [_cause(judgement, events) if answer == "cause" else _unknown(judgement.first)]
        found += _followed(judgement, events)
    found += _harmless(events)
    data: dict[str, Any] = {
        "root": path,
        "answer": answer,
        "row": judgement.first.row.name if judgement is not None and answer == "cause" else "",
        "logs": len(logs),
        "lines": sum(log.lines for log in logs),
        "bytes": sum(log.bytes for log in logs),
        "limited": any(log.limited for log in logs),
        "interrupted": any(log.interrupted for log in logs),
    }
    return Result("diagnose", (*found, *unread), data, {log.name: log.sha256 for log in logs})


def _cause(judgement: Judgement, events: Sequence[Event]) -> Finding:
    first, row = judgement.first, judgement.first.row
    raised = row.name == "script.exception"
    message = f"the script raised an exception: {first.text.strip()}" if raised else row.cause
    evidence = {
        **_evidence(first, [event for event in events if event.row is row]),
        "confidence": judgement.confidence,
        "why": judgement.why,
        "official": _official(first, [one for one in events if one.file == first.file]),
        "next": _BLOCKING if row.next == _ALL_LOGS and len({one.file for one in events}) > 1 else row.next,
    }
    return Finding(CAUSE, Severity.ERROR, Safety.REPORT, _place(first), message, row.fix, evidence)


def _official(first: Event, events: Sequence[Event]) -> str:
    """CANN's own words where the row has only a code's general meaning."""
    if first.row.role is not Role.CODE:
        return ""
    near = [event.text for event in events if 0 <= event.line - first.line < BELONGS]
    return next(filter(None, map(official.words_for, near)), "")


def _unknown(first: Event) -> Finding:
    near, share = find_nearest_row(first.text)
    far = "" if share >= _NEAR else ", though far,"
    hint = f"The nearest that is known{far} is {near.name}: {near.cause}" if near else "Nothing that is known is near."
    evidence = {**_evidence(first, [first]), "confidence": "low", "nearest": near.name if near else ""}
    evidence |= {"official": official.words_for(first.text)}
    return Finding(
        UNKNOWN,
        Severity.WARNING,
        Safety.REPORT,
        _place(first),
        f"the run failed, and nothing is known about why: {first.text.strip()}",
        hint,
        evidence,
    )


def _followed(judgement: Judgement, events: Sequence[Event]) -> Iterator[Finding]:
    """What else was printed, one finding a row, in order of time."""
    told = {judgement.first.row.name}
    for event in judgement.others:
        if event.row.name not in told:
            told.add(event.row.name)
            same = [one for one in events if one.row is event.row]
            message = event.row.cause if event.row.name != "script.exception" else f"exception: {event.text.strip()}"
            yield Finding(
                FOLLOWS, Severity.INFO, Safety.REPORT, _place(event), message, evidence=_evidence(event, same)
            )


def _harmless(events: Sequence[Event]) -> Iterator[Finding]:
    told: set[str] = set()
    for event in events:
        if event.row.role is Role.NOTICE and event.row.name not in told:
            told.add(event.row.name)
            same = [one for one in events if one.row is event.row]
            evidence = _evidence(event, same)
            yield Finding(
                HARMLESS, Severity.INFO, Safety.REPORT, _place(event), event.row.cause, event.row.fix, evidence
            )


def _evidence(event: Event, same: Sequence[Event]) -> dict[str, Any]:
    """The row, its lines as `proof`, and the ranks that printed them, the first of them first."""
    ranks = dict.fromkeys(one.rank for one in (event, *same) if one.rank)
    lines = [event, *(one for one in same if one.line != event.line or one.file != event.file)]
    return {
        "row": event.row.name,
        "source": event.text.strip(),
        "at": event.at,
        "ranks": list(ranks),
        "seen": len(same),
        "proof": [{"file": line.file, "line": line.line, "text": line.text.strip()} for line in lines[:PROOF]],
    }


def _place(event: Event) -> Location:
    return Location(event.file, event.line, 1, event.line, len(event.text) + 1)


def find_nearest_row(text: str) -> tuple[Row | None, float]:
    """The row whose sample has most words in common with `text`, and the share of these; None where there is none."""
    words = set(_LETTERS.findall(text.lower())) - _IN_ALL

    def share(row: Row) -> float:
        theirs = set(_LETTERS.findall(f"{' '.join(row.samples)} {' '.join(row.words)}".lower())) - _IN_ALL
        return len(words & theirs) / len(words | theirs) if words else 0.0

    best = max((row for row in load_error_rows().values() if row.role not in (Role.NOTICE, Role.EFFECT)), key=share)
    return (best, share(best)) if share(best) else (None, 0.0)
