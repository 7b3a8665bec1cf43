"""Which of the events came first and explains the others."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from torchport.diagnose.logs import Event
from torchport.knowledge.errors import Role

APART = 30  # lines between two events of one rank that do not belong together
# Within what was printed together, the line that says most.
_SAYS = {role: place for place, role in enumerate(Role)}
# Between what was printed apart, what can be the reason for the others: a cause before a bare code, that before a
# warning, this before how a process ended, that before ranks that waited for it.
_EXPLAINS = {Role.CAUSE: 0, Role.CODE: 1, Role.SCRIPT: 1, Role.OUTCOME: 3, Role.PEER: 4, Role.EFFECT: 5}
_WARNING = 2
_ENDS = ("process.", "launcher.", "host.", "serving.")  # families with rows on how processes end
NAMELESS = "follow.failure"  # the row of errors in words of no other
_ERROR = re.compile(r"error|exception|fail|fatal|abort|panic|traceback|错误|失败|异常", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """`first` explains the rest; `others` are the heads of what was printed apart, in order of time, without those of
    the same row. `confidence` is "high", "medium" or "low", `why` says for what reason."""

    first: Event
    others: tuple[Event, ...]
    confidence: str
    why: str


def judge_events(events: Iterable[Event]) -> Judgement | None:
    """The judgement on all events of all logs; None where none of them tells of a failure.

    A warning by itself tells of none.
    """
    groups = _together(events)
    if all(event.is_warning for group in groups for event in group):
        return None
    heads = [_head(group) for group in groups]
    ordered = _in_time(heads)
    first = min(ordered, key=_explains)  # the first of the best
    if first.row.role is Role.OUTCOME and first.row.name.startswith(_ENDS):
        first = _find_nameless(groups, first) or first
    others = tuple(event for event in ordered if event is not first)
    return Judgement(first, others, *_confidence(first, others))


def says_error(line: str) -> bool:
    """Whether a line tells of an error by itself."""
    return _ERROR.search(line) is not None


def _find_nameless(groups: Sequence[Sequence[Event]], outcome: Event) -> Event | None:
    """The first error in words of no row that was printed before a process ended: it may be why."""
    told = (event for group in groups for event in group if event.file == outcome.file and event.line < outcome.line)
    return next((event for event in told if event.row.name == NAMELESS and not event.is_warning), None)


def _explains(event: Event) -> int:
    weight = _EXPLAINS[event.row.role]
    if weight < _WARNING and event.is_warning:
        return _WARNING
    return max(weight, _EXPLAINS[Role.CODE]) if event.is_guess else weight


def _together(events: Iterable[Event]) -> list[list[Event]]:
    """Events that were printed together: by the same rank into the same file, close to each other."""
    groups: list[list[Event]] = []
    last: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.row.role is Role.NOTICE:
            continue
        group = last.get((event.file, event.rank))
        if group is None or event.line - group[-1].line > APART:
            group = last[event.file, event.rank] = []
            groups.append(group)
        group.append(event)
    return groups


def _head(group: Sequence[Event]) -> Event:
    head = min(group, key=_rank_in_group)
    moments = [event.when for event in group if event.when is not None]
    return dataclasses.replace(head, when=_earliest(moments)) if moments else head


def _rank_in_group(event: Event) -> tuple[Any, ...]:
    """By what a line says, and among lines that say as much by the first; a bare code, or a shape, comes last."""
    bare = event.is_bare_code or event.row.name.startswith("general.")
    return (_explains(event), _SAYS[event.row.role], event.is_warning, bare, event.line, -_specificity(event))


def _specificity(event: Event) -> int:
    """Of several rows that speak of one line, the one with the longest words means it most exactly."""
    return max((len(word) for word in event.row.words if word in event.text), default=0)


def _earliest(moments: Sequence[float]) -> float:
    """The first of the moments; what has whole seconds only gives way to another of that second that has more."""
    first = min(moments)
    exact = [moment for moment in moments if first < moment < first + 1] if first.is_integer() else []
    return min(exact, default=first)


def _in_time(heads: Sequence[Event]) -> list[Event]:
    """By time where each has one; in one file without, by line."""
    if all(head.when is not None for head in heads):
        return sorted(heads, key=lambda head: (head.when, head.file, head.line))
    if len({head.file for head in heads}) == 1:
        return sorted(heads, key=lambda head: head.line)
    late = float("inf")
    return sorted(heads, key=lambda head: (late if head.when is None else head.when, head.file, head.line))


def _confidence(first: Event, others: Sequence[Event]) -> tuple[str, str]:
    rivals = [other for other in others if other.row.role is Role.CAUSE and other.row.name != first.row.name]
    if first.row.role in (Role.PEER, Role.EFFECT, Role.OUTCOME):
        return "low", "it shows that something failed elsewhere, and not what"
    if first.is_warning:
        return "low", "the line is a warning, and nothing else says why the run failed"
    if first.row.role in (Role.CODE, Role.SCRIPT):
        return ("medium", "the code is general" if first.row.role is Role.CODE else "no row knows this exception")
    if first.is_guess:
        return "medium", "it is CANN's own guess at the cause of a code"
    if first.row.unsure:
        return "medium", "the line does not tell which of the things that the cause names it was"
    if first.is_bare_code:
        return "medium", "a code alone tells it, and no sentence beside it"
    timeless = any(rival.when is None for rival in (first, *rivals))
    if rivals and timeless and {rival.file for rival in rivals} != {first.file}:
        return "medium", "other causes are named too, and not all lines have a time"
    if not others and not says_error(first.text):
        return "medium", "the line does not say that it is an error, and no other tells of a failure"
    return "high", "the first in time that explains the others" if others else "the only cause that is named"
