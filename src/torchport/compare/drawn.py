"""What the device's own random numbers were, where those of the run stand in their place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.compare import causes
from torchport.compare.conditions import error_finding, open_finding
from torchport.findings import Finding, Severity
from torchport.record.recording import Recording
from torchport.results.comparison import Draw

# A right device is refused once in 10^8 (Gauss's tail beyond 6, both sides: 2e-9; Bernstein's bound, which holds for
# every law with a range: exp(-18) = 1.5e-8).
SIGMAS = 6.0
# torch_npu 2.13 drops nothing between the layers of these, whatever it is told.
LAYERS = ("lstm", "gru")


def drawn_conditions(port: Recording) -> Iterator[Finding]:
    """TP352 for draws whose statistics are not those of their law, TP353 for those that the device refuses; one finding
    for each operator and dtype."""
    wrong: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for event in port.of_kind("drawn"):
        text = event.get("error", "")
        words = f"{event['operator']} of {event['dtype']}"
        if gap := causes.virtual_gap(text):
            wrong.setdefault(("TP343", words, gap), []).append(event)
        elif text:
            wrong.setdefault(("TP353", words, text), []).append(event)
        elif fault := _fault(event):
            wrong.setdefault(("TP352", words, fault), []).append(event)
    told = set()
    for (code, words, text), events in wrong.items():
        if (code, words) in told:
            continue
        told.add((code, words))
        places = len({event["site"] for key, same in wrong.items() if key[:2] == (code, words) for event in same})
        where = f"at {events[0]['site']}" + (f" and {places - 1} more places" if places > 1 else "")
        if code == "TP343":
            yield open_finding(code, f"the virtual NPU lacks what {words} {where} needs to draw by itself: {text}")
        elif code == "TP353":
            yield error_finding(code, f"by itself the NPU cannot draw {words} {where}: {text}", _INSTEAD)
        else:
            found = error_finding(code, f"by itself the NPU draws {words} {where} otherwise: {text}", _INSTEAD)
            # torch_npu's own way with a layer is nothing that a port can be blamed for; people have to know it.
            layer = events[0]["operator"].removeprefix("aten::").startswith(LAYERS)
            yield dataclasses.replace(found, severity=Severity.WARNING) if layer else found


_INSTEAD = "Both runs were given the same numbers, so losses do not show it; without torchport the port draws its own."


def list_own_draws(port: Recording) -> list[Draw]:
    """Each draw of the device's own, with the reason why it does not hold ("" if it does)."""
    found = []
    for event in port.of_kind("drawn"):
        why = event.get("error", "") or _fault(event)
        found.append(
            Draw(
                event["operator"],
                event["site"],
                event["dtype"],
                event["count"],
                mean=_finite(event.get("mean")),
                expected_mean=_finite(event.get("expected_mean")),
                variance=_finite(event.get("variance")),
                expected_variance=_finite(event.get("expected_variance")),
                holds=not why,
                why=why,
            )
        )
    return found


def _fault(event: Mapping[str, Any]) -> str:
    """What is wrong with the numbers of a draw, "" where nothing is.

    Allowed of a moment are SIGMAS standard errors, Bernstein's term for numbers whose law has a range (for others that
    of three deviations), which counts where there are few, and the rounding of the dtype.
    """
    if event.get("problem"):
        return str(event["problem"])
    count = max(int(event["count"]), 1)
    mean, expected, variance, of_law, kurtosis, rounding = (
        float(event[name])
        for name in ("mean", "expected_mean", "variance", "expected_variance", "kurtosis", "rounding")
    )
    deviation = math.sqrt(of_law)
    least, most = event["expected_least"], event["expected_most"]
    reach = max(float(most) - expected, expected - float(least)) if None not in (least, most) else 3 * deviation
    few = SIGMAS**2 / 3 / count
    for name, value, right, allowed in (
        ("mean", mean, expected, SIGMAS * deviation / math.sqrt(count) + few * reach + rounding),
        (
            "variance",
            variance,
            of_law,
            SIGMAS * of_law * math.sqrt(max(kurtosis - 1, 0) / count)
            + few * reach**2
            + 2 * rounding * deviation
            + rounding**2
            + 1e-9 * of_law,
        ),
    ):
        if not abs(value - right) <= allowed:  # nor what is not a number
            return f"the {name} of {count:,} is {value:.4g}, where {right:.4g} is expected (chance: {allowed:.1g})"
    if least is not None and float(event["least"]) < float(least) - rounding:
        return f"{float(event['least']):g} is among them, where {float(least):g} is the least"
    if most is not None and float(event["most"]) > float(most) + rounding:
        return f"{float(event['most']):g} is among them, where {float(most):g} is the most"
    return ""


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(float(value)) else None
