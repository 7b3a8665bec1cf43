"""Regular expressions that take linear time on every text, by their syntax: no clock has to be asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import _constants as names  # type: ignore[attr-defined]  # what `re` itself compiles with
from re import _parser  # type: ignore[attr-defined]
from typing import Any

WAYS = 20_000  # at one place of a text, how often the end of a pattern is tried at most
ALPHABET = frozenset(map(chr, range(128))) | {"é", "中", "│"}
_CATEGORIES = {
    names.CATEGORY_DIGIT: r"\d",
    names.CATEGORY_NOT_DIGIT: r"\D",
    names.CATEGORY_SPACE: r"\s",
    names.CATEGORY_NOT_SPACE: r"\S",
    names.CATEGORY_WORD: r"\w",
    names.CATEGORY_NOT_WORD: r"\W",
}
_REPEATS = (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT)
_STARTS = (names.AT_BEGINNING, names.AT_BEGINNING_STRING)
Node = tuple[Any, Any]
Class = frozenset[str]


def slow_parts(pattern: re.Pattern[str]) -> list[str]:
    """Why a search with the pattern may take longer than linear time; nothing for one that is known not to.

    A repeat without a bound may be of single characters only, in no other repeat, and between a character that cannot
    be part of it and one that cannot either, or the end: then each character is looked at by one run of it. Repeats
    with a bound may multiply to `WAYS`. Stricter than is necessary: what is refused can be written in another way.
    """
    if pattern.flags & re.IGNORECASE:
        return ["it takes letters of both cases, which is not looked into"]
    found, ways = _sequence(list(_parser.parse(pattern.pattern, pattern.flags)), frozenset(), (), False)
    return found + ([f"its repeats multiply to {ways} ways"] if ways > WAYS else [])


def _sequence(nodes: Sequence[Node], after: Class, before: tuple[Class, ...], repeated: bool) -> tuple[list[str], int]:
    """Complaints, and the number of ways to match. `after` is what can follow; `before` has the classes of single
    characters that have to come shortly before, an empty one for a start of a line; `repeated`: in a repeat."""
    found: list[str] = []
    ways, beside = 1, 0
    for number, (kind, value) in enumerate(nodes):
        follows, complaints, inside = _first(nodes[number + 1 :], after), [], 1
        if kind in _REPEATS:
            least, most, item = value
            own = _characters(item)
            if most == names.MAXREPEAT:
                found += _unbounded(own, follows, before, repeated)
            elif own is None:
                complaints, each = _sequence(list(item), follows | _first(item, after), before, repeated or most > 1)
                inside = sum(each**times for times in range(least, most + 1))
            elif own & follows:
                inside = most - least + 1
            if least and own is not None:
                before = (*before, own)
        elif kind is names.SUBPATTERN or kind is names.ATOMIC_GROUP:
            within = list(value[-1] if kind is names.SUBPATTERN else value)
            complaints, inside = _sequence(within, follows, before, repeated)
        elif kind is names.BRANCH:
            parts = [_sequence(list(part), follows, before, repeated) for part in value[1]]
            complaints, inside = [one for part, _ in parts for one in part], sum(each for _, each in parts)
        elif kind in (names.ASSERT, names.ASSERT_NOT):  # asked once: it is not tried in another way afterwards
            complaints, each = _sequence(list(value[1]), frozenset(), before, repeated)
            beside += each
        elif kind is names.AT:
            before = (*before, frozenset()) if value in _STARTS else before
        elif (own := _characters([(kind, value)])) is not None:
            before = (*before, own)
        else:
            complaints = [f"{kind} is not looked into"]
        found, ways = found + complaints, ways * inside
    return found, ways + beside


def _unbounded(own: Class | None, follows: Class, before: tuple[Class, ...], repeated: bool) -> Iterator[str]:
    if own is None:
        yield "a group repeats without a bound"
        return
    if repeated:
        yield "a repeat without a bound is in another repeat"
    if own & follows:
        yield "what follows a repeat without a bound can be part of it"
    if not any(own.isdisjoint(one) for one in before):
        yield "a repeat without a bound can begin anywhere in what it repeats"


def _first(nodes: Sequence[Node], after: Class) -> Class:
    """The characters that a match of these can begin with, `after` among them where all of these can be empty."""
    found: Class = frozenset()
    for kind, value in nodes:
        if kind in (names.AT, names.ASSERT, names.ASSERT_NOT):
            continue
        if (own := _characters([(kind, value)])) is not None:
            return found | own
        if kind in _REPEATS:
            found |= _first(value[2], frozenset())
            if value[0]:
                return found
        elif kind is names.SUBPATTERN or kind is names.ATOMIC_GROUP:
            within = list(value[-1] if kind is names.SUBPATTERN else value)
            found |= _first(within, frozenset())
            if not _can_be_empty(within):
                return found
        elif kind is names.BRANCH:
            found |= frozenset().union(*(_first(part, frozenset()) for part in value[1]))
            if not any(map(_can_be_empty, value[1])):
                return found
        else:
            return ALPHABET
    return found | after


def _can_be_empty(nodes: Sequence[Node]) -> bool:
    nothing = frozenset({"nothing"})
    return bool(_first(nodes, nothing) & nothing)


def _characters(nodes: Sequence[Node]) -> Class | None:
    """The characters of a pattern that matches one character; None for another pattern."""
    if len(nodes) != 1:
        return None
    ((kind, value),) = nodes
    if kind is names.SUBPATTERN:
        return _characters(value[-1])
    if kind is names.ANY:
        return ALPHABET - {"\n"}
    if kind is names.NOT_LITERAL:
        return ALPHABET - {chr(value)}
    if kind is not names.IN:
        return _class(kind, value) if kind is names.LITERAL else None
    negated, members = value[0][0] is names.NEGATE, [one for one in value if one[0] is not names.NEGATE]
    own: Class = frozenset().union(*(_class(*member) for member in members))
    return ALPHABET - own if negated else own


def _class(kind: Any, value: Any) -> Class:
    if kind is names.LITERAL:
        return frozenset({chr(value)})
    if kind is names.RANGE:
        return frozenset(one for one in ALPHABET if value[0] <= ord(one) <= value[1])
    return frozenset(one for one in ALPHABET if re.fullmatch(_CATEGORIES[value], one))
