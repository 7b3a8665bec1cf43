"""What is found in logs, as findings."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from torchport.diagnose import plogs, sources
from torchport.diagnose.devices import explain_taken_device, find_odd_uses
from torchport.diagnose.fields import GUESSES, load_fields
from torchport.diagnose.judging import NAMELESS, Judgement, judge_events, says_error
from torchport.diagnose.logs import BELONGS, EXCEPTION, Event, Log, scan_log
from torchport.diagnose.sickness import Sign, load_sickness
from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.knowledge.errors import REPORT_TO, Owner, Role, Row, load_error_rows, official

CAUSE, FOLLOWS, HARMLESS, UNKNOWN, UNREAD, SICK = "TP801", "TP802", "TP803", "TP804", "TP805", "TP806"
PLACE = "TP807"
LIMIT = 1 << 30  # bytes of a file: an endless pipe has an end
PROOF = 3  # lines
_LETTERS = re.compile(r"[A-Za-z_]{3,}")
_IN_ALL = {"error", "runtimeerror", "failed", "python", "the", "for", "with", "and", "not", "was"}  # say nothing
_NEAR, _COMMON = 0.4, 3  # a row is near that has two fifths of a line's words, and three of them
_ALL_LOGS = "torchport diagnose FOLDER_OF_ALL_LOGS"  # what a row asks for where one rank alone has spoken
_BLOCKING = "ASCEND_LAUNCH_BLOCKING=1 torchport run SCRIPT"  # and what is left when all have
_WENT_ON = 3  # lines of training behind an error, and a good end: the run went on
_RETRIED = re.compile(r"\bretr(?:y|ied|ying|ies)\b|\btry(?:ing)? again\b|重试", re.IGNORECASE)
_LIBRARY = (
    "Read it: {0} says in its own words what it does not take, or does not have. Compare its release with the one that "
    "the script's instructions name, and look for the sentence in the issues of {0}."
)
_BEFORE = 60  # lines before a general code in which the first error that no row knows is quoted
_GENERAL = "general."  # the family of rows that know the shape of an exception, and not its words


def diagnose_logs(path: str, stdin: BinaryIO | None, limit: int = LIMIT, plog: Path | None = None) -> Result:
    """What the log `path` says: a file, a folder of the logs of all ranks, or "-" for `stdin`.

    At most `limit` bytes of each file are read. CANN's own logs of the processes that are named are read too where
    the folder `plog` has them. `data["answer"]` is

    - "cause": a cause is named;
    - "sick": nothing was raised, and the numbers say that the training is worthless;
    - "unknown": it failed, and nothing is known about why;
    - "clean": it is seen to have come to a good end;
    - "open": neither.

    Raises TorchportError for a file that is missing, cannot be read or is no text.
    """
    unread: list[str] = []
    if path == "-":
        logs = [sources.scan_stdin(stdin, limit)]
    elif Path(path).is_dir():
        logs, unread = sources.scan_folder(Path(path), limit)
    else:
        logs = [sources.scan_file(path, limit)]
    beside: list[Log] = []
    if plog is not None and plog.is_dir():
        beside, more = plogs.scan_plogs(plog, logs, limit)
        unread += more
    return _result(path, logs, beside, unread)


def diagnose_text(text: str, name: str = "output") -> Result:
    """The same of a text, such as what a script has printed."""
    return _result(name, [scan_log(io.BytesIO(text.encode("utf-8", "replace")), name, LIMIT)], [], [])


def _result(path: str, logs: Sequence[Log], beside: Sequence[Log], unread: Iterable[str]) -> Result:
    went_on = [event for log in logs for event in _survived(log)]
    events: Sequence[Event] = [
        event for log in (*logs, *beside) for event in log.events if not any(event is one for one in went_on)
    ]
    judgement = judge_events(events)
    signs = [(log, sign) for log in logs for sign in log.signs]
    found: list[Finding] = []
    answer = "clean" if any(log.ending for log in logs) else "open"
    if judgement is not None:
        judgement, events = explain_taken_device(judgement, events)
        answer = "unknown" if judgement.first.row.role is Role.EFFECT else "cause"
        found += [_cause(judgement, events) if answer == "cause" else _unknown(judgement.first)]
        found += _followed(judgement, events)
    elif signs:
        answer = "sick"
    found += [_sick(log, sign, first=answer == "sick") for log, sign in signs]
    if judgement is None:
        went_on += [event for event in events if event.is_warning and event.row.role is not Role.NOTICE]
    found += _harmless([*events, *went_on], went_on)
    for text in find_odd_uses([line for log in logs for line in log.tail]):
        found.append(Finding(PLACE, Severity.WARNING, Safety.REPORT, None, text))
    found += [Finding(UNREAD, Severity.INFO, Safety.REPORT, None, text) for text in unread]
    row = judgement.first.row.name if judgement is not None and answer == "cause" else ""
    data: dict[str, Any] = {
        "root": path,
        "answer": answer,
        "row": f"sick.{signs[0][1].name}" if answer == "sick" else row,
        "logs": len(logs),
        "plogs": [log.name for log in beside],
        "lines": sum(log.lines for log in (*logs, *beside)),
        "bytes": sum(log.bytes for log in (*logs, *beside)),
        "limited": any(log.limited for log in (*logs, *beside)),
        "interrupted": any(log.interrupted for log in (*logs, *beside)),
    }
    return Result("diagnose", tuple(found), data, {log.name: log.sha256 for log in (*logs, *beside)})


def _survived(log: Log) -> Iterator[Event]:
    """Errors behind which training went on to a good end, and lines before one that do not say that they are errors."""
    for event in log.events if log.ending else ():
        behind = sum(event.line < number for number in log.progress)
        quiet = not log.raised and not says_error(event.text)
        went_on = behind >= _WENT_ON or _RETRIED.search(event.text) or quiet
        if event.row.role is not Role.NOTICE and event.line < log.ending and went_on:
            yield event


def _cause(judgement: Judgement, events: Sequence[Event]) -> Finding:
    first, row = judgement.first, judgement.first.row
    message, owner, fixes = row.cause, row.owner, [row.fix, *_remedies(first)]
    if row.name == EXCEPTION:
        message = f"{first.package or 'the script'} raised an exception: {first.text.strip()}"
        owner = Owner.SCRIPT if first.at and not first.package else Owner.UNKNOWN
        if first.package:
            fixes = [_LIBRARY.format(first.package)]
    elif row.name.startswith(_GENERAL):
        message = f"{row.cause.rstrip('.')}: {first.text.strip()}"
    if first.package and (row.name == EXCEPTION or row.name.startswith(_GENERAL)):
        owner = Owner.TORCH_NPU if first.package == "torch_npu" else Owner.LIBRARY
    evidence = {
        **_evidence(first, [event for event in events if event.row is row]),
        "confidence": judgement.confidence,
        "why": judgement.why,
        "owner": str(owner),
        "report": REPORT_TO.get(owner, ""),
        "official": _official(first, [one for one in events if one.file == first.file]),
        "next": _BLOCKING if row.next == _ALL_LOGS and len({one.file for one in events}) > 1 else row.next,
        "before": _find_before(first, events),
    }
    return Finding(CAUSE, Severity.ERROR, Safety.REPORT, _place(first), message, " ".join(fixes), evidence)


def _find_before(first: Event, events: Sequence[Event]) -> str:
    """The first error in words of no row close before a general code: it may say what the code does not."""
    if first.row.role is not Role.CODE and not first.is_bare_code:
        return ""
    near = (event for event in events if event.file == first.file and 0 < first.line - event.line <= _BEFORE)
    return next((event.text.strip() for event in near if event.row.name == NAMELESS), "")


def _official(first: Event, events: Sequence[Event]) -> str:
    """CANN's own words where the row has only a code's general meaning."""
    if first.row.role is not Role.CODE:
        return ""
    near = [event.text for event in events if 0 <= event.line - first.line < BELONGS]
    return next(filter(None, map(official.words_for, near)), "")


def _remedies(event: Event) -> Iterator[str]:
    """The remedies that the facts around a line give."""
    for name, value in event.fields.items():
        if load_fields()[name].fix:
            yield load_fields()[name].fix.format(value)


def _unknown(first: Event) -> Finding:
    """An effect that stands alone has its own remedy; words that no row has, the nearest row if one is near."""
    near = find_nearest_row(first.text)[0] if first.row.name == NAMELESS else None
    hint = f"The nearest that is known is {near.name}: {near.cause}" if near else first.row.fix
    evidence = {**_evidence(first, [first]), "confidence": "low", "nearest": near.name if near else ""}
    evidence |= {"official": official.words_for(first.text), "next": first.row.next}
    return Finding(
        UNKNOWN,
        Severity.WARNING,
        Safety.REPORT,
        _place(first),
        f"the run failed, and no row knows why; the first error says: {first.text.strip()}",
        " ".join([hint, *_remedies(first)]),
        evidence,
    )


def _sick(log: Log, sign: Sign, *, first: bool) -> Finding:
    row = load_sickness()[sign.name]
    text = log.progress[sign.line].rpartition("\r")[2].strip()
    evidence = {
        "row": f"sick.{sign.name}",
        "source": text,
        "proof": [{"file": log.name, "line": sign.line, "text": text}],
        "next": row["next"],
    }
    severity = Severity.ERROR if first else Severity.INFO
    place = Location(log.name, sign.line, 1, sign.line, len(text) + 1)
    return Finding(SICK, severity, Safety.REPORT, place, sign.cause, row["fix"], evidence)


def _followed(judgement: Judgement, events: Sequence[Event]) -> Iterator[Finding]:
    """What else was printed, one finding a row, in order of time."""
    told = {judgement.first.row.name}
    for event in judgement.others:
        if event.row.name not in told:
            told.add(event.row.name)
            same = [one for one in events if one.row is event.row]
            message = event.row.cause if event.row.name != EXCEPTION else f"exception: {event.text.strip()}"
            yield Finding(
                FOLLOWS, Severity.INFO, Safety.REPORT, _place(event), message, evidence=_evidence(event, same)
            )


def _harmless(events: Sequence[Event], went_on: Sequence[Event]) -> Iterator[Finding]:
    """Notices, and of what the run survived and of warnings, that they were printed."""
    told: set[str] = set()
    for event in events:
        passed = any(event is one for one in went_on)
        if (event.row.role is Role.NOTICE or passed) and event.row.name not in told:
            told.add(event.row.name)
            evidence = _evidence(event, [one for one in events if one.row is event.row])
            message, fix = event.row.cause, event.row.fix
            if passed:
                what = "a warning" if event.is_warning else "an error, after which the run went on"
                message, fix = f"{what}: {event.text.strip()}", ""
            yield Finding(HARMLESS, Severity.INFO, Safety.REPORT, _place(event), message, fix, evidence)


def _evidence(event: Event, same: Sequence[Event]) -> dict[str, Any]:
    """The row, its lines as `proof`, the ranks that printed them, the first of them first, and the facts around it."""
    ranks = dict.fromkeys(one.rank for one in (event, *same) if one.rank)
    lines = [event, *(one for one in same if one.line != event.line or one.file != event.file)]
    facts = {name: load_fields()[name].says.format(value) for name, value in event.fields.items()}
    return {
        "row": event.row.name,
        "source": event.text.strip(),
        "at": event.at,
        "ranks": list(ranks),
        "seen": len(same),
        "facts": [says for name, says in facts.items() if name not in GUESSES],
        "guesses": [says for name, says in facts.items() if name in GUESSES],
        "proof": [{"file": line.file, "line": line.line, "text": line.text.strip()} for line in lines[:PROOF]],
    }


def _place(event: Event) -> Location:
    return Location(event.file, event.line, 1, event.line, len(event.text) + 1)


def find_nearest_row(text: str) -> tuple[Row | None, float]:
    """The row that has most words of `text` in its samples, and the share of them; (None, 0.0) where none is near."""
    words = set(_LETTERS.findall(text.lower())) - _IN_ALL

    def common(row: Row) -> int:
        return len(words & (set(_LETTERS.findall(f"{' '.join(row.samples)} {' '.join(row.words)}".lower())) - _IN_ALL))

    best = max((row for row in load_error_rows().values() if row.role not in (Role.NOTICE, Role.EFFECT)), key=common)
    share = common(best) / max(len(words), 1)
    return (best, share) if common(best) >= _COMMON and share >= _NEAR else (None, 0.0)
