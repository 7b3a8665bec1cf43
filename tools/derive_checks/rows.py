"""From the outcomes of the walks to what a row says of each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interpreter import FRACTIONS, WHOLE, Outcome
from states import Known, State, joined
from words import EVERY_DTYPE, EVERY_RANK, EVERY_SAMPLE, NAMED_DTYPES, highest, ranges, words

PAIRED = {"dtype": "same", "rank": "ranks"}


@dataclass(frozen=True)
class Limits:
    """What a first phase accepts of one parameter on one chip.

    dtypes: None where no list checks them, "" where all are refused; except_for: what is refused without a list;
    sometimes: an attribute or another tensor decides whether it is checked.
    """

    dtypes: str | None
    max_rank: int | None
    except_for: str = ""
    sometimes: bool = False


def known_of(state: State, kind: str, parameter: str) -> Known:
    fact = state.fact(parameter)
    return fact.dtypes if kind == "dtype" else fact.ranks


def refused_by(states: Sequence[State], kind: str, parameter: str) -> int:
    """What a refusal refused of a parameter for its own sake."""
    found = 0
    for state in states:
        known = known_of(state, kind, parameter)
        if state.blame == (kind, parameter) and known.possible != known.every:
            found |= known.possible
    return found


def paired(states: Sequence[State], kind: str, parameter: str) -> bool:
    """Whether a refusal said that this parameter differs from another."""
    return any(s.blame and s.blame[0] == PAIRED[kind] and parameter in s.blame[1:] for s in states)


def remaining(outcome: Outcome, end: State, kind: str, parameter: str) -> int:
    """What is accepted: possible in the end, and never refused for itself unless it was let through elsewhere."""
    known = known_of(end, kind, parameter)
    affirmed = known.affirmed()
    if paired(outcome.refused, kind, parameter) and affirmed and not affirmed & ~(known.every >> 1):
        # On some way it has to be as another parameter is, which a list limits.
        return known.possible & affirmed
    refused = refused_by(outcome.refused, kind, parameter)
    return known.possible & (affirmed | ~refused) or known.possible


def limits(outcome: Outcome, parameters: Sequence[str]) -> dict[str, Limits]:
    """What is accepted of each parameter."""
    if not outcome.accepted:
        return dict.fromkeys(parameters, Limits("", None))
    end = joined(outcome.accepted)
    found = {}
    for name in parameters:
        dtypes = remaining(outcome, end, "dtype", name)
        ranks = remaining(outcome, end, "rank", name)
        # What a list leaves does not have the dtypes that have no name here.
        listed = not dtypes & (EVERY_DTYPE ^ NAMED_DTYPES) and (dtypes != 0 or not end.fact(name).may_be_null)
        rank = highest(ranks) if ranks != EVERY_RANK else None
        found[name] = Limits(
            dtypes=words(dtypes) if listed else None,
            max_rank=rank,
            except_for="" if listed or not dtypes else words(~dtypes & NAMED_DTYPES),
            sometimes=listed and end.fact(name).dtypes.possible & ~dtypes != 0,
        )
    return found


def numbers(outcome: Outcome, parameters: dict[str, str]) -> dict[str, str]:
    """The ranges (words.ranges) of the attributes, given with their types, that are not taken whatever they are.

    Only what is refused on every way: what depends on another argument is left to the operators' lines.
    """
    if not outcome.accepted or not outcome.complete:
        return {}
    end = joined(outcome.accepted)
    found = {}
    for name, kind in parameters.items():
        samples = end.fact(name).ranks.possible
        if kind in WHOLE | FRACTIONS and samples not in (0, EVERY_SAMPLE):
            found[name] = ranges(samples, whole=kind in WHOLE)
    return {name: listed for name, listed in found.items() if listed not in ("", "..")}


def same(outcome: Outcome) -> set[tuple[str, str]]:
    """The pairs of parameters that are refused when their dtypes differ, on every way on which both are given."""
    return set(joined(outcome.accepted).same) if outcome.accepted else set()
