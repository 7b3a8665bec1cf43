"""One log, read once: what rows say of its lines, when, and on which rank."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import PurePath
from typing import BinaryIO

from torchport.diagnose import moments
from torchport.diagnose.matching import TEXT, Matcher
from torchport.diagnose.raised import Raised
from torchport.diagnose.reading import read_blocks
from torchport.knowledge.errors import Role, Row, load_error_rows

EXCEPTION = "script.exception"
BELONGS = 12  # lines behind an exception in which its message may go on, as torch_npu's do


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A line that a row speaks of. `when` are seconds of its year, `rank` and `at` (FILE:LINE of the user's) "" where
    nothing says them."""

    row: Row
    file: str
    line: int
    text: str
    when: float | None
    rank: str
    at: str = ""


@dataclasses.dataclass(slots=True)
class Log:
    """What was found in a file: events in order of their lines, and how often each row speaks."""

    name: str
    events: list[Event] = dataclasses.field(default_factory=list)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    lines: int = 0
    bytes: int = 0
    sha256: str = ""
    last: str = ""  # the last line with words
    interrupted: bool = False
    limited: bool = False


def scan_log(stream: BinaryIO, name: str, limit: int) -> Log:
    """Read `stream` to its end, or `limit` bytes of it; Ctrl-C ends it too.

    Raises OSError, and reading.NotTextError for what is no text.
    """
    log, matcher, raised = Log(name), Matcher(), Raised()
    digest = hashlib.sha256()
    own = moments.rank_of_file(PurePath(name))
    exceptions: list[tuple[int, Event]] = []
    try:
        for block in read_blocks(stream, limit):
            digest.update(block)
            log.bytes += len(block)
            log.limited = log.bytes >= limit
            first, lines = matcher.lines + 1, block.split(b"\n")
            for hit in matcher.find_hits(block, lines):
                if hit.row.name != EXCEPTION:
                    moment = moments.find_line_time(lines, hit.line - first)
                    log.events.append(
                        Event(hit.row, name, hit.line, hit.text, moment, moments.parse_rank(hit.text) or own)
                    )
            for head, number, text, place in raised.find_exceptions(lines, first):
                line = text[:TEXT].decode("utf-8", "replace")
                start = lines[max(head - first, 0)].decode("utf-8", "replace")
                moment = moments.find_line_time(lines, number - first)
                exceptions.append(
                    (
                        head,
                        Event(
                            load_error_rows()[EXCEPTION],
                            name,
                            number,
                            line,
                            moment,
                            moments.parse_rank(start) or own,
                            place,
                        ),
                    )
                )
            log.last = (
                next((words for line in reversed(lines) if (words := line.strip())), b"")[:TEXT].decode(
                    "utf-8", "replace"
                )
                or log.last
            )
    except KeyboardInterrupt:
        log.interrupted = True
    log.lines, log.counts, log.sha256 = matcher.lines, matcher.counts, digest.hexdigest()
    log.events = _settled(log.events, exceptions)
    return log


def _settled(events: list[Event], exceptions: list[tuple[int, Event]]) -> list[Event]:
    """Events without effects on lines that are harmless, and with the exceptions that no other row speaks of.

    Where one does, it is given the place of the user's from the traceback.
    """
    harmless = {event.line for event in events if event.row.role is Role.NOTICE}
    kept = [event for event in events if event.row.role is not Role.EFFECT or event.line not in harmless]
    for head, raised in exceptions:
        told = False
        for at, event in enumerate(kept):
            # An effect on a line behind may be that of the exception itself.
            reach = 0 if event.row.role is Role.EFFECT else BELONGS
            if event.row.role is Role.NOTICE or not head <= event.line <= raised.line + reach:
                continue
            if event.row.role is Role.EFFECT and event.line != raised.line:
                continue
            if event.rank != raised.rank and event.rank and raised.rank:
                continue
            told = True
            if not event.at:
                kept[at] = dataclasses.replace(event, at=raised.at)
        if not told:
            kept.append(raised)
    return sorted(kept, key=lambda event: event.line)
