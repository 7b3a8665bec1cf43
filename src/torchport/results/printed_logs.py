"""The result of comparing two printed logs."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class NameRow:
    """One name that both logs print. Differences are relative; `where` and `last` are in words ("step 120").

    `judged` is "within", "outside", "undecided", or "" for a name that the rule of thumb is not about.
    """

    name: str
    by: str
    pairs: int
    alone: tuple[int, int]
    mean: float
    mean_at_most: float
    largest: float
    where: str
    lines: tuple[int, int]
    tail: float
    drift: str
    above: str
    last: str
    last_values: tuple[float, float]
    judged: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PrintedLogs:
    """Two logs compared: `answer` is "within the rule of thumb", "outside of it" or "undecided"; `reason` says why,
    `notes` what else a reader should know, `unseen` what no log shows. `only` are the names that one log alone has."""

    answer: str
    reason: str
    logs: tuple[str, str]
    bound: float
    rows: tuple[NameRow, ...] = ()
    notes: tuple[str, ...] = ()
    only: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    unseen: str = ""


def percent(value: float) -> str:
    """A share in percent, with two digits that count."""
    return f"{100 * value:.2g} %" if value < 1 else f"{100 * value:,.0f} %"
