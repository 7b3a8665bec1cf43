"""One log, read once: what rows say of its lines, when, and on which rank."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import BinaryIO

from torchport.diagnose import moments
from torchport.diagnose.fields import extract_fields
from torchport.diagnose.matching import TEXT, Hit, Matcher
from torchport.diagnose.progress import Progress, find_ending
from torchport.diagnose.raised import ExceptionReader, Raised
from torchport.diagnose.reading import read_blocks
from torchport.diagnose.sickness import Sign, find_signs
from torchport.knowledge.errors import Role, Row, load_error_rows

EXCEPTION = "script.exception"
BELONGS = 12  # lines behind an exception in which its message may go on, as torch_npu's do
BEFORE = 3  # lines before an event in which facts of it stand
# A line's own mark, in the order in which they stand in it: a warning may tell of an error.
_MARK = re.compile(
    r"(?P<warning>\w{0,40}Warning\b|\bWARN(?:ING)?\b|\[W[ \d]|^W\d{4} |警告|告警)"
    r"|错误|\w{0,60}Error\b|\bERROR\b|\[E[ \d]|^E\d{4} |Exception"
)
_CODE = re.compile(r"\b(?:[EW][A-Z0-9]\d{4}|[1-5]\d{5})\b")
_GUESS = re.compile(r"Possible [Cc]ause|\bSolution:|[Pp]ossible (?:cause|reason)s? (?:is|are)|\bMaybe\b")


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A line that a row speaks of. `when` are seconds of its year, `rank`, `at` (FILE:LINE of the user's) and `package`
    (the installed one that raised an exception) "" where nothing says them, `fields` facts of the lines around it."""

    row: Row
    file: str
    line: int
    text: str
    when: float | None
    rank: str
    at: str = ""
    package: str = ""
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_warning(self) -> bool:
        """Whether the line calls itself a warning, and is none of a row all of whose samples do."""
        return calls_itself_warning(self.text) and not is_told_as_warning(self.row)

    @property
    def is_guess(self) -> bool:
        """Whether the words stand in what CANN takes for the possible cause of a code."""
        guess = _GUESS.search(self.text)
        at = min((self.text.find(word) for word in self.row.words if word in self.text), default=-1)
        return bool(guess and 0 <= guess.start() <= at)

    @property
    def is_bare_code(self) -> bool:
        """Whether nothing but a code in the line is what the row knows."""
        return all(_CODE.search(word) for word in self.row.words if word in self.text)


def calls_itself_warning(line: str) -> bool:
    """Whether the first mark of a level in a line is the one of a warning."""
    mark = _MARK.search(line)
    return bool(mark and mark["warning"])


@functools.cache
def is_told_as_warning(row: Row) -> bool:
    """Whether a failure is told by warnings alone, as Kubernetes tells that a pod was killed."""
    return row.role is not Role.NOTICE and all(map(calls_itself_warning, row.samples))


@dataclasses.dataclass(slots=True)
class Log:
    """The findings of a file: events in order of their lines, and how often each row speaks.

    `ending` is the number of the line at its end that says that all went well, 0 for none; `progress` has the lines
    with numbers of training by their own number, and `signs` tell by these that the training is sick.
    """

    name: str
    events: list[Event] = dataclasses.field(default_factory=list)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    lines: int = 0
    bytes: int = 0
    sha256: str = ""
    last: str = ""  # the last line with words
    ending: int = 0
    raised: int = 0  # the line of the last exception, 0 for none
    tail: list[str] = dataclasses.field(default_factory=list)  # the last lines
    signs: list[Sign] = dataclasses.field(default_factory=list)
    progress: Mapping[int, str] = dataclasses.field(default_factory=dict)
    interrupted: bool = False
    limited: bool = False


def scan_log(stream: BinaryIO, name: str, limit: int) -> Log:
    """Read `stream` to its end, or `limit` bytes of it; Ctrl-C ends it too.

    Raises OSError, and reading.NotTextError for what is no text.
    """
    log, matcher, exceptions, progress = Log(name), Matcher(), ExceptionReader(), Progress()
    digest = hashlib.sha256()
    own = moments.rank_of_file(PurePath(name))
    raised: list[tuple[int, Event]] = []
    try:
        for block in read_blocks(stream, limit):
            digest.update(block)
            log.bytes += len(block)
            log.limited = log.bytes >= limit
            first, lines = matcher.lines + 1, block.split(b"\n")
            progress.add_block(lines, first)
            for hit in matcher.find_hits(block, lines):
                if hit.row.name != EXCEPTION:
                    log.events.append(_event(hit, name, lines, first, own))
            for one in exceptions.find_exceptions(lines, first):
                raised.append((one.head, _exception(one, name, lines, first, own)))
            log.last = (
                next((words for line in reversed(lines) if (words := line.strip())), b"")[:TEXT].decode(
                    "utf-8", "replace"
                )
                or log.last
            )
    except KeyboardInterrupt:
        log.interrupted = True
    log.lines, log.counts, log.sha256 = matcher.lines, matcher.counts, digest.hexdigest()
    log.events = _settled(log.events, raised)
    log.raised = max((event.line for _, event in raised), default=0)
    tail = progress.find_tail()
    log.ending, _ = find_ending(tail)
    log.tail = [line for _, line in tail]
    log.progress = dict(sorted(progress.lines.items()))
    log.signs = find_signs(log.progress)
    return log


def _event(hit: Hit, name: str, lines: Sequence[bytes], first: int, own: str) -> Event:
    moment = moments.find_line_time(lines, hit.line - first)
    rank = moments.parse_rank(hit.text) or own
    return Event(hit.row, name, hit.line, hit.text, moment, rank, fields=_fields(lines, hit.line - first))


def _exception(one: Raised, name: str, lines: Sequence[bytes], first: int, own: str) -> Event:
    head = max(one.head - first, 0)
    start = lines[head].decode("utf-8", "replace")
    return Event(
        load_error_rows()[EXCEPTION],
        name,
        one.line,
        one.text[:TEXT].decode("utf-8", "replace"),
        moments.find_line_time(lines, one.line - first),
        moments.parse_rank(start) or own,
        one.at,
        one.package,
        _fields(lines, one.line - first),
    )


def _fields(lines: Sequence[bytes], own: int) -> dict[str, str]:
    """The facts of a line and of what belongs to it, its own first."""
    near = (*range(own, own + BELONGS + 1), *range(own - 1, own - 1 - BEFORE, -1))
    return extract_fields(lines[at][:4096].decode("utf-8", "replace").rstrip() for at in near if 0 <= at < len(lines))


def _settled(events: list[Event], exceptions: list[tuple[int, Event]]) -> list[Event]:
    """Events without effects on lines that are harmless, and with the exceptions that no other row speaks of.

    Where one does, it is given the place of the user's from the traceback.
    """
    harmless = {event.line for event in events if event.row.role is Role.NOTICE}
    kept = [event for event in events if event.row.role is not Role.EFFECT or event.line not in harmless]
    lines = [event.line for event in kept]
    untold = []
    for head, raised in exceptions:
        told = False
        for at in range(bisect.bisect_left(lines, head), bisect.bisect_right(lines, raised.line + BELONGS)):
            if _tells(kept[at], raised):
                told = True
                if not kept[at].at:
                    kept[at] = dataclasses.replace(kept[at], at=raised.at, package=raised.package)
        if not told:
            untold.append(raised)
    return sorted((*kept, *untold), key=lambda event: event.line)


def _tells(event: Event, raised: Event) -> bool:
    """Whether an event in the lines of an exception, or close behind them, is that exception in a row's words."""
    if event.row.role is Role.NOTICE or (event.rank != raised.rank and event.rank and raised.rank):
        return False
    if event.row.role is Role.EFFECT or event.is_warning:
        return event.line == raised.line
    # Lines behind an exception may explain it; how processes end then does not.
    return event.line <= raised.line or event.row.role in (Role.CAUSE, Role.CODE, Role.PEER)
