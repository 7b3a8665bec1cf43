"""Whether the port starts from the original's numbers by itself: its own weights, before they are made equal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.compare.conditions import error_finding
from torchport.findings import Finding, Safety, Severity
from torchport.record.recording import Recording

# Bounds on what rounding leaves of an initialisation that a device computes, by `equal.measure_difference`: the largest
# element is several times the root mean square, and half a unit in its last place is 2^-12 or 2^-9 of it in half
# precision.
ROUNDED = {"float16": 4e-3, "bfloat16": 3e-2}
EXACT = 1e-3
# A later stage goes on with what the first has trained, moved by rounding: of such a tensor by `equal.measure_share`.
LATER = 0.1
_HINT = (
    "Look for weights that are not loaded, layers that `strict=False` leaves out, and an initialisation that is chosen "
    "by the device."
)


def starts_equal(port: Recording, control: Recording | None, *, chance: bool) -> Iterator[Finding]:
    """Compare the port's own start, before it was given the original's weights, with the original's.

    With `chance` both runs draw numbers of their own, and weights that differ say nothing; so it is with tensors that
    differ in `control`, too, the original run again: they come from a clock, or from another machine's generators."""
    drawn = list_drawn(control)
    for process in port.trained:
        for event in process.of_kind("weights"):
            if event["action"] == "mismatch":
                yield Finding(
                    "TP305",
                    Severity.WARNING,
                    Safety.REPORT,
                    None,
                    f"the port could not be given the original's initial weights ({event['name']}): {event['detail']}",
                    "The runs start from different numbers; a difference in the loss may come from that alone.",
                )
        apart = [
            event for event in process.of_kind("start") if is_more_than_rounding(event) and event["tensor"] not in drawn
        ]
        if apart and not chance:
            worst = max(apart, key=lambda event: float(event["difference"]))
            others = len(apart) - 1
            also = f" ({others} more tensor{'s' * (others > 1)} too)" if others else ""
            yield error_finding(
                "TP305",
                f"the port starts from other weights: {worst['tensor']} {_by(float(worst['difference']))}{also}",
                _HINT,
            )
            return


def list_drawn(control: Recording | None) -> set[str]:
    """The tensors with which another run of the original starts otherwise, by itself."""
    told = [] if control is None else control.of_kind("start")
    return {event["tensor"] for event in told if is_more_than_rounding(event) and not event.get("planted")}


def is_more_than_rounding(event: Mapping[str, Any]) -> bool:
    """Whether an event `start` tells of a tensor that is not the original's."""
    if "share" in event:
        return not float(event["share"]) <= LATER
    return not float(event["difference"]) <= ROUNDED.get(event["dtype"], EXACT)


def _by(difference: float) -> str:
    return f"differs by {difference:.1e} times its size" if math.isfinite(difference) else "has other numbers"
