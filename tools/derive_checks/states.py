"""What is known of an operator's tensors at a point of its first phase.

A state has the values of the local variables and, per tensor, the dtypes and ranks with which that point is reached.
A condition splits a state, a refusal ends it, and states that meet again with the same local variables are joined.

Joining forgets which condition led to which set: after `if (training) check(mean)` every dtype of mean is possible.
So a set remembers beside what is possible what was *affirmed*: what came through a narrowing on one of the ways.
What was refused by a narrowing of its own and nowhere affirmed is refused, whatever else is possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from words import EVERY_DTYPE, EVERY_RANK, EVERY_SAMPLE

Value = tuple[Any, ...]
# Of the constants that a first phase returns: that it refuses.
FAILURE = re.compile(r"\w*ERR(OR)?(_\w*)?|\w*FAIL\w*")
DERIVED = -1  # affirmed is what is possible, or nothing where everything is


@dataclass(frozen=True)
class Known:
    """A set of possibilities, and those of it that a check has let through."""

    every: int
    possible: int
    let_through: int = DERIVED

    def affirmed(self) -> int:
        if self.let_through != DERIVED:
            return self.let_through
        return 0 if self.possible == self.every else self.possible

    def narrowed(self, to: int) -> Known:
        if self.possible & to == self.possible:
            return self
        let_through = DERIVED if self.let_through == DERIVED else self.let_through & to or DERIVED
        return Known(self.every, self.possible & to, let_through)

    def joined(self, other: Known) -> Known:
        if self == other:
            return self
        possible = self.possible | other.possible
        affirmed = self.affirmed() | other.affirmed()
        return Known(self.every, possible, DERIVED if affirmed == possible else affirmed)


@dataclass(frozen=True)
class Fact:
    """What is known of one tensor; a null pointer has no dtype and no rank."""

    dtypes: Known = Known(EVERY_DTYPE, EVERY_DTYPE)
    ranks: Known = Known(EVERY_RANK, EVERY_RANK)
    may_be_null: bool = True
    may_be_there: bool = True

    def joined(self, other: Fact) -> Fact:
        if self is other or self == other:
            return self
        return Fact(
            self.dtypes.joined(other.dtypes),
            self.ranks.joined(other.ranks),
            self.may_be_null or other.may_be_null,
            self.may_be_there or other.may_be_there,
        )


UNCHECKED = Fact()
# An attribute has values for ranks: which of the samples it can be.
NUMBER = Fact(ranks=Known(EVERY_SAMPLE, EVERY_SAMPLE), may_be_null=False)
NULL = Fact(Known(EVERY_DTYPE, 0), Known(EVERY_RANK, 0), True, False)
Facts = dict[str, Fact]
Same = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class State:
    """A point of the walk. `blame` is the set that was narrowed last: what a refusal here refuses."""

    locals: dict[str, Value]
    facts: Facts
    same: Same = frozenset()
    blame: tuple[str, ...] | None = None

    def fact(self, tensor: str) -> Fact:
        return self.facts.get(tensor, UNCHECKED)

    def having(self, name: str, value: Value) -> State:
        """The state after an assignment."""
        if self.locals.get(name) == value:
            return self
        return State({**self.locals, name: value}, self.facts, self.same, self.blame)

    def within(self, values: dict[str, Value]) -> State:
        """The same facts with other local variables."""
        return State(values, self.facts, self.same, self.blame)

    def blameless(self) -> State:
        """The state after a condition that nothing is known of: what is refused now is not refused for its dtype."""
        return self if self.blame is None else State(self.locals, self.facts, self.same, None)

    def partners(self, tensor: str) -> set[str]:
        """The tensors that have the dtype of this one."""
        return {b if a == tensor else a for a, b in self.same if tensor in (a, b)}

    def with_dtypes(self, tensor: str, dtypes: int) -> State | None:
        """The state where the tensor has one of these dtypes; None where it cannot."""
        fact = self.fact(tensor)
        known = fact.dtypes.narrowed(dtypes)
        if not known.possible:
            return None
        facts = {**self.facts, tensor: replace(fact, dtypes=known, may_be_null=False)}
        for partner in self.partners(tensor):
            other = facts.get(partner, UNCHECKED)
            facts[partner] = replace(other, dtypes=other.dtypes.narrowed(dtypes))
        blame = self.blame if known is fact.dtypes else ("dtype", tensor)
        return State(self.locals, facts, self.same, blame)

    def with_ranks(self, tensor: str, ranks: int) -> State | None:
        """The state where the tensor has one of these ranks; None where it cannot."""
        fact = self.fact(tensor)
        known = fact.ranks.narrowed(ranks)
        if not known.possible:
            return None
        facts = {**self.facts, tensor: replace(fact, ranks=known, may_be_null=False)}
        return State(self.locals, facts, self.same, self.blame if known is fact.ranks else ("rank", tensor))

    def with_null(self, tensor: str, null: bool) -> State | None:
        """The state where the pointer is null, or where it is not; None where that cannot be."""
        fact = self.fact(tensor)
        if not (fact.may_be_null if null else fact.may_be_there):
            return None
        if fact.may_be_null != fact.may_be_there:
            return self
        return State(
            self.locals,
            {**self.facts, tensor: NULL if null else replace(fact, may_be_null=False)},
            self.same,
            ("null", tensor),
        )

    def with_same(self, one: str, other: str) -> State | None:
        """The state where two tensors have the same dtype; None where they cannot."""
        if one == other:
            return self
        both = self.fact(one).dtypes.possible & self.fact(other).dtypes.possible
        first = self.with_dtypes(one, both)
        second = first and first.with_dtypes(other, both)
        pair = (one, other) if one < other else (other, one)
        return second and State(second.locals, second.facts, second.same | {pair}, self.blame)


def joined(states: list[State]) -> State:
    """What is known where all of these meet; of local variables what they agree on."""
    first = states[0]
    if len(states) == 1:
        return first
    facts = dict(first.facts)
    for state in states[1:]:
        for tensor in facts.keys() | state.facts.keys():
            facts[tensor] = facts.get(tensor, UNCHECKED).joined(state.fact(tensor))
    pairs = {pair for state in states for pair in state.same}
    # A null pointer has no dtype that could differ.
    same = frozenset(
        (a, b)
        for a, b in pairs
        if all((a, b) in s.same or not s.fact(a).may_be_there or not s.fact(b).may_be_there for s in states)
    )
    values = first.locals
    for state in states[1:]:
        if state.locals is not values:
            values = {name: either(state.locals[name], value) for name, value in values.items() if name in state.locals}
    blames = {state.blame for state in states}
    return State(values, facts, same, blames.pop() if len(blames) == 1 else None)


def either(one: Value, other: Value) -> Value:
    """What is known of a value that is one of two: of objects, of each field."""
    if one == other or (is_failure(one) and is_failure(other)):
        return one
    if one[0] == other[0] == "object" and one[1] == other[1]:
        first, second = dict(one[2]), dict(other[2])
        names = sorted(first.keys() | second.keys())
        return (*one[:2], tuple((n, either(first.get(n, ("any",)), second.get(n, ("any",)))) for n in names))
    return ("any",)


def meeting(states: list[State], most: int = 24) -> list[State]:
    """States with the same local variables joined; all of them where there are more than `most`."""
    if len(states) < 2:
        return states
    groups: dict[tuple[object, ...], list[State]] = {}
    for state in states:
        # A refusal on its way out stays apart by what it refuses.
        key = (refusing(state), frozenset(state.locals.items()), state.blame if refusing(state) else None)
        groups.setdefault(key, []).append(state)
    found = [joined(group) for group in groups.values()]
    if len(found) > most:
        # First those with the same tensors, as what is known of an object depends on them, then all that go on.
        found = [joined(group) for group in grouped(found, lambda s: (refusing(s) and s.blame, refusing(s), absent(s)))]
    if len(found) > most:
        found = [joined(group) for group in grouped(found, lambda s: (refusing(s), refusing(s) and s.blame))]
    return found


def absent(state: State) -> frozenset[str]:
    """The tensors that are null pointers."""
    return frozenset(tensor for tensor, fact in state.facts.items() if not fact.may_be_there)


def grouped(states: list[State], key: Callable[[State], object]) -> list[list[State]]:
    """States with the same key together."""
    groups: dict[object, list[State]] = {}
    for state in states:
        groups.setdefault(key(state), []).append(state)
    return list(groups.values())


def is_failure(value: Value) -> bool:
    """Whether a value is a code that a first phase refuses with."""
    return value[0] == "constant" and FAILURE.fullmatch(value[1]) is not None


def refusing(state: State) -> bool:
    """Whether a local variable holds such a code."""
    return any(map(is_failure, state.locals.values()))
