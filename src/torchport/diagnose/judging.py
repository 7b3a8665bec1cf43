"""Which of the events came first and explains the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from torchport.diagnose.logs import Event
from torchport.knowledge.errors import Role

APART = 30  # lines between two events of one rank that do not belong together
# Within what was printed together, the line that says most.
_SAYS = {role: place for place, role in enumerate(Role)}
# Between what was printed apart, what can be the reason for the others: a cause before a bare code, that before how a
# process ended, that before those who waited for it.
_EXPLAINS = {Role.CAUSE: 0, Role.CODE: 1, Role.SCRIPT: 1, Role.OUTCOME: 2, Role.PEER: 3, Role.EFFECT: 4}


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """`first` explains the rest; `others` are the heads of what was printed apart, in order of time, without those of
    the same row. `confidence` is "high", "medium" or "low", `why` says for what reason."""

    first: Event
    others: tuple[Event, ...]
    confidence: str
    why: str


def judge_events(events: Iterable[Event]) -> Judgement | None:
    """The judgement on all events of all logs; None where none of them tells of a failure."""
    heads = [_head(group) for group in _together(events)]
    if not heads:
        return None
    ordered = _in_time(heads)
    first = min(ordered, key=lambda event: _EXPLAINS[event.row.role])  # the first of the best
    others = tuple(event for event in ordered if event is not first)
    return Judgement(first, others, *_confidence(first, others))


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
    head = min(group, key=lambda event: (_SAYS[event.row.role], event.line))
    moments = [event.when for event in group if event.when is not None]
    return dataclasses.replace(head, when=_earliest(moments)) if moments else head


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
    if first.row.role in (Role.CODE, Role.SCRIPT):
        return ("medium", "the code is general" if first.row.role is Role.CODE else "no row knows this exception")
    timeless = any(rival.when is None for rival in (first, *rivals))
    if rivals and timeless and {rival.file for rival in rivals} != {first.file}:
        return "medium", "other causes are named too, and not all lines have a time"
    return "high", "the first in time that explains the others" if others else "the only cause that is named"
