"""What conditions say of a state: comparisons and memberships of the values that the evaluation knows.

Values are tuples: ("any",), ("bool", True), ("number", 8), ("constant", "DAV_2201"), ("null",), ("list", items),
("tensor", name, type), and of a tensor ("dtype", name), ("shape", name), ("rank", name, added). ("positive",) is a
size, of which it is known that it is not 0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from states import State, Value, is_failure
from words import (
    BIT,
    EVERY_DTYPE,
    EVERY_RANK,
    EVERY_SAMPLE,
    HIGHEST_RANK,
    SAMPLES,
    SOC_VERSIONS,
    dtypes_of,
    ranks_where,
)

NOTHING: Value = ("any",)
TRUE: Value = ("bool", True)
FALSE: Value = ("bool", False)
Tested = list[tuple[bool, State]]
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def constant(value: Value) -> str:
    """What a first phase returns: "success", "failure", or "" for any other value."""
    if value[0] == "constant":
        return "failure" if is_failure(value) else "success" if value[1].endswith("SUCCESS") else ""
    return ""


def truth(value: Value) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    if value[0] == "bool":
        return bool(value[1])
    if value[0] == "number":
        return bool(value[1] != 0)
    if value[0] == "null" or constant(value) == "failure":
        return False
    if value[0] in ("positive", "object", "list"):
        return True
    return None


def both(state: State) -> Tested:
    """Either way, without knowing anything more."""
    unblamed = state.blameless()
    return [(True, unblamed), (False, unblamed)]


def sides(yes: State | None, no: State | None) -> Tested:
    """The ways that exist."""
    return [(held, state) for held, state in ((True, yes), (False, no)) if state is not None]


def dtype_among(tensor: str, dtypes: int, state: State) -> Tested:
    """Whether a tensor's dtype is one of these."""
    if not state.fact(tensor).dtypes.possible:
        return both(state)
    return sides(state.with_dtypes(tensor, dtypes), state.with_dtypes(tensor, EVERY_DTYPE & ~dtypes))


def rank_where(value: Value, holds: Callable[[int], bool], state: State) -> Tested:
    """Whether a condition holds for a tensor's rank."""
    ranks = ranks_where(holds(rank + value[2]) for rank in range(HIGHEST_RANK + 1))
    if not state.fact(value[1]).ranks.possible:
        return both(state)
    return sides(state.with_ranks(value[1], ranks), state.with_ranks(value[1], EVERY_RANK & ~ranks))


def attribute_where(value: Value, holds: Callable[[float], bool], state: State) -> Tested:
    """Whether a condition holds for an attribute's value."""
    _, name, added = value
    samples = ranks_where(holds(sample + added) for sample in SAMPLES)
    return sides(state.with_ranks(name, samples), state.with_ranks(name, EVERY_SAMPLE & ~samples))


def sampled(value: Value, numbers: Iterable[float]) -> bool:
    """Whether equality with all these numbers can be told from the samples."""
    return all(number - value[2] in SAMPLES for number in numbers)


def dtype_name(value: Value) -> str | None:
    """The name of a dtype that is a constant."""
    if value[0] != "constant":
        return None
    name = str(value[1])
    if name.startswith("ACL_") and "DT_" + name[4:] in BIT:
        return "DT_" + name[4:]
    return name if name.startswith("DT_") else None


def among(value: Value, items: Value, state: State) -> Tested:
    """Whether a value is one of a list."""
    if items[0] != "list":
        return both(state)
    members = [item[1][0] if item[0] == "list" and item[1] else item for item in items[1]]
    if value[0] == "dtype":
        names = [dtype_name(item) for item in members]
        known = [name for name in names if name is not None]
        return dtype_among(value[1], dtypes_of(known), state) if len(known) == len(names) else both(state)
    if value[0] == "rank" and all(item[0] == "number" for item in members):
        numbers = {item[1] for item in members}
        return rank_where(value, lambda rank: rank in numbers, state)
    if value[0] == "attribute" and all(item[0] == "number" for item in members):
        numbers = {item[1] for item in members}
        if not sampled(value, numbers):
            return both(state)
        return attribute_where(value, lambda number: number in numbers, state)
    if value[0] in ("constant", "number") and all(item[0] in ("constant", "number") for item in members):
        return [(value in members, state)]
    return both(state)


def null_or_not(value: Value, state: State) -> Tested:
    """Whether a value is a null pointer."""
    if value[0] == "null":
        return [(True, state)]
    if value[0] == "tensor":
        return sides(state.with_null(value[1], True), state.with_null(value[1], False))
    if value[0] in ("object", "list"):
        return [(False, state)]
    return both(state)


def equal(a: Value, b: Value, state: State) -> Tested:
    """Whether two values are equal."""
    if b[0] == "null" or a[0] == "null":
        return null_or_not(a if b[0] == "null" else b, state)
    if a[0] != "dtype" and b[0] == "dtype":
        a, b = b, a
    if a[0] == "dtype":
        if b[0] == "dtype":
            return same_dtype(a[1], b[1], state)
        name = dtype_name(b)
        return dtype_among(a[1], dtypes_of([name]), state) if name else both(state)
    if b[0] == "end" and a[0] == "found":
        return [(not held, after) for held, after in among(a[1], a[2], state)]
    if a[0] == "end" and b[0] == "found":
        return equal(b, a, state)
    if a[0] == b[0] == "constant":
        known_as = {"ASCEND950": "ASCEND910_95"}
        return [(known_as.get(a[1], a[1]) == known_as.get(b[1], b[1]), state)]
    if a[0] == b[0] == "bool":
        return [(a == b, state)]
    if {a[0], b[0]} == {"bool", "any"} or a[0] == "any" or b[0] == "any":
        return both(state)
    return [(True, state)] if a == b and a[0] not in ("shape", "positive") else both(state)


def same_dtype(one: str, other: str, state: State) -> Tested:
    """Whether two tensors have the same dtype."""
    if one == other:
        return [(True, state)]
    first, second = state.fact(one).dtypes.possible, state.fact(other).dtypes.possible
    if not first or not second:
        return both(state)
    pair = (one, other) if one < other else (other, one)
    alike = pair in state.same or (first == second and first & (first - 1) == 0)
    differing = None if alike else State(state.locals, state.facts, state.same, ("same", *pair))
    return sides(state.with_same(one, other), differing)


def same_rank(a: Value, b: Value, state: State) -> Tested:
    """Whether two tensors have the same rank; where something is added to one of them, nothing is known."""
    ranks = state.fact(a[1]).ranks.possible & state.fact(b[1]).ranks.possible
    if a[2] != b[2]:
        return both(state)
    first = state.with_ranks(a[1], ranks)
    yes = first and first.with_ranks(b[1], ranks)
    differing = State(state.locals, state.facts, state.same, ("ranks", a[1], b[1]))
    return sides(yes and State(yes.locals, yes.facts, yes.same, state.blame), differing)


def compared(sign: str, a: Value, b: Value, state: State) -> Tested:
    """A comparison."""
    if b[0] in ("rank", "attribute") and a[0] == "number":
        sign, a, b = MIRRORED[sign], b, a
    if a[0] == "attribute" and b[0] == "number":
        if sign in ("==", "!=") and not sampled(a, [b[1]]):
            return both(state)
        return attribute_where(a, lambda number: COMPARE[sign](number, b[1]), state)
    if a[0] == "rank" and b[0] == "number":
        return rank_where(a, lambda rank: COMPARE[sign](rank, b[1]), state)
    if a[0] == b[0] == "rank" and a[1] != b[1] and sign in ("==", "!="):
        tested = same_rank(a, b, state)
        return tested if sign == "==" else [(not held, after) for held, after in tested]
    if a[0] == "number" and b[0] == "number":
        return [(COMPARE[sign](a[1], b[1]), state)]
    if a[0] == "number" and b[0] == "positive":
        sign, a, b = MIRRORED[sign], b, a
    if a[0] == "positive" and b[0] == "number" and b[1] <= 0:
        return [(sign in (">", ">=", "!="), state)]
    if a[0] == "found" and b[0] == "number":
        held_if = COMPARE[sign](1, b[1])
        if COMPARE[sign](0, b[1]) == held_if:
            return [(held_if, state)]
        return [(held == held_if, after) for held, after in among(a[1], a[2], state)]
    if sign in ("==", "!="):
        tested = equal(a, b, state)
        return tested if sign == "==" else [(not held, after) for held, after in tested]
    if a[0] == b[0] == "constant":
        order = ["ASCEND910_95" if v[1] == "ASCEND950" else str(v[1]) for v in (a, b)]
        if all(name in SOC_VERSIONS for name in order):
            return [(COMPARE[sign](SOC_VERSIONS.index(order[0]), SOC_VERSIONS.index(order[1])), state)]
    return both(state)
