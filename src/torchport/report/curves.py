"""The curves of a comparison, one for each place that records a step, and where the two runs part."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STEPWISE = "step by step"


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """What both runs recorded at one place in the script, such as the loss at `train.py:20`.

    `errors` are the relative differences of the steps that both have, `allowed` their bounds (infinite where a step is
    not judged by itself), `noise` how far rounding alone moves the original, `windows` the means that a statistical
    comparison looks at.
    """

    name: str
    what: str
    reference: tuple[float, ...]
    port: tuple[float, ...]
    errors: tuple[float, ...]
    windows: tuple[Mapping[str, Any], ...]
    allowed: tuple[float, ...]
    noise: tuple[float, ...]

    @property
    def title(self) -> str:
        """ "loss at train.py:20"."""
        return f"{self.what} at {self.name}" if self.name else self.what


def read_curves(comparison: Mapping[str, Any] | None) -> list[Curve]:
    """The curves of a comparison's data that hold at least one value; none where there is no comparison."""
    curves = [
        Curve(
            str(row.get("name") or ""),
            str(row.get("what") or "loss"),
            _floats(row.get("reference")),
            _floats(row.get("port")),
            _floats(row.get("errors")),
            tuple(row.get("windows") or ()),
            _floats(row.get("allowed")),
            _floats(row.get("noise")),
        )
        for row in (comparison or {}).get("curves") or ()
    ]
    return [curve for curve in curves if curve.reference or curve.port]


def is_stepwise(comparison: Mapping[str, Any]) -> bool:
    """Whether single steps were judged, not means over many."""
    return str(comparison.get("method") or STEPWISE).startswith(STEPWISE) and not comparison.get("chance")


def judged(curve: Curve) -> int:
    """How many steps are judged by themselves, before means decide; 0 where no bounds are stated."""
    return next(
        (step for step, bound in enumerate(curve.allowed) if not math.isfinite(bound)), len(curve.allowed)
    )


def bad_windows(curve: Curve) -> list[Mapping[str, Any]]:
    """The stretches of a statistical comparison whose means differ by more than chance explains."""
    return [span for span in curve.windows if not span.get("holds", True)]


def finite(values: Iterable[float]) -> list[float]:
    """The values without NaN and infinity."""
    return [value for value in values if math.isfinite(value)]


def _floats(values: Sequence[Any] | None) -> tuple[float, ...]:
    # JSON has no word for NaN: it is stored as a text, and a step without a value as null.
    return tuple(math.nan if value is None else float(value) for value in values or ())
