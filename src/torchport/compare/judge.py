"""The verdict on a port, from the recordings of the original and of the port."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from typing import Any

from torchport.compare import curves
from torchport.compare.metrics import SHARE, Metric, final_metrics
from torchport.compare.tolerance import STATISTICAL, TOLERANCES, Statistical, Tolerance
from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.record.recording import Recording

# The loosest precision that either side used decides; float32 where none is recorded.
LOOSEST = ("bfloat16", "float16", "float32")

STEPWISE = "step by step"
STATISTICALLY = "statistically"
MIXED = "step by step at first, then statistically"
TOO_FEW = (
    f"Give the script arguments with which it trains at least {STATISTICAL.least} steps, better a hundred."
)


def compare(reference: Recording, port: Recording) -> Result:
    """Judge `port` against `reference`.

    `data["holds"]` is the verdict; `data["curves"]`, `data["errors"]`, `data["windows"]` and
    `data["metrics"]` are what it rests on, `data["tolerance"]` the bounds and `data["method"]` how they were
    applied: STEPWISE, or STATISTICALLY where the runs draw random numbers of their own, or MIXED for half
    precision. Each reason against the port is a finding of severity error.
    """
    tolerance = _tolerance(reference, port)
    chance = _chance(reference, port)
    method = STATISTICALLY if chance else STEPWISE if tolerance.run is not None else MIXED
    losses, ours = reference.losses, port.losses
    errors = curves.relative_errors(losses, ours, tolerance.floor)
    first = errors[: tolerance.first_steps]
    whole = _comparable(losses, ours)
    spans = curves.windows(losses[:whole], ours[:whole], STATISTICAL)
    metrics = _metrics(
        reference, port, STATISTICAL.points if chance else tolerance.points, None if chance else tolerance.run
    )
    findings = [
        *ending(reference, "the original"),
        *ending(port, "the port"),
        *_weights(port),
        *(_information(reason, tolerance) for reason in chance),
        *(_steps(reference, port) if port.status == 0 else ()),  # else it is plain why they are fewer
        *_not_finite(losses, ours),
        *(_by_step(losses, ours, first, tolerance.first) if method != STATISTICALLY else ()),
        *(_by_windows(spans, STATISTICAL) if method != STEPWISE else ()),
        *(_metric_finding(row) for row in metrics if not row["holds"]),
    ]
    if losses and ours and not (spans if method != STEPWISE else whole):
        what = "compare" if method == STEPWISE else "compare statistically"
        end = "" if whole == min(len(losses), len(ours)) else ", before a loss is not finite"
        findings.append(_error("TP304", f"too few steps to {what}: {whole}{end}", TOO_FEW if not end else ""))
    if method == STEPWISE and not any(finding.code == "TP301" for finding in findings):
        findings += _by_step(losses, ours, errors, tolerance.run or 0.0)
    data = {
        "holds": not any(finding.severity is Severity.ERROR for finding in findings),
        "method": method,
        "chance": chance,
        "tolerance": {name: getattr(tolerance, name) for name in Tolerance.__slots__},
        "statistical": {name: getattr(STATISTICAL, name) for name in Statistical.__slots__},
        "steps": {"reference": len(losses), "port": len(ours)},
        "worst": {"first": max(first, default=None), "run": max(errors, default=None)},
        "seconds": {"reference": _median_seconds(reference), "port": _median_seconds(port)},
        "curves": {"reference": losses, "port": ours},
        "errors": errors,
        "windows": [
            {name: getattr(span, name) for name in curves.Window.__slots__} | {"holds": span.holds}
            for span in spans
        ],
        "metrics": metrics,
    }
    return Result("compare", tuple(findings), data)


def _tolerance(*recordings: Recording) -> Tolerance:
    used = {event["dtype"] for recording in recordings for event in recording.of_kind("precision")}
    return TOLERANCES[next(dtype for dtype in LOOSEST if dtype in used or dtype == "float32")]


def _chance(reference: Recording, port: Recording) -> list[str]:
    """Why the two runs cannot be equal step by step: what each leaves to chance."""
    reasons = sorted(
        {event["detail"] for recording in (reference, port) for event in recording.of_kind("random")}
    )
    seeds = [
        [(event["of"], event["value"]) for event in recording.of_kind("seed")]
        for recording in (reference, port)
    ]
    if seeds[0] != seeds[1]:
        reasons.append("the script seeds its generators differently in each run")
    return reasons


def _information(reason: str, tolerance: Tolerance) -> Finding:
    return Finding(
        "TP320",
        Severity.INFO,
        Safety.REPORT,
        None,
        f"the runs are compared statistically: {reason}",
        "The mean loss of each tenth of the run is compared. Without dropout and noise the comparison is step by step, "
        f"to {tolerance.first:g} relative.",
    )


def ending(recording: Recording, who: str) -> Iterator[Finding]:
    """A finding where the run that is called `who` did not end well."""
    if recording.status == 0:
        return
    reached = f"after {len(recording.steps)} steps" if recording.steps else "before the first step"
    ends = recording.of_kind("end")
    if not ends:
        yield _error("TP310", f"{who} was stopped from outside {reached}", stderr=recording.last_messages)
        return
    end = ends[-1]
    place = Location(end["path"], end["line"], 1, end["line"], 1) if end["path"] else None
    cause = f": {end['error']}" if end["error"] else ""
    if end["timeout"]:
        message = f"{who} did not finish within {end['timeout']:g} s; it was stopped {reached}"
        hint = "Give a longer --timeout, or arguments for a shorter run."
        if place is not None:
            hint = f"The place is where its main thread was. {hint}"
        yield _error("TP311", message, hint, location=place, stderr=recording.last_messages)
        return
    how = f"exit status {end['status']}" if end["status"] > 0 else f"signal {_signal(-end['status'])}"
    yield _error(
        "TP310", f"{who} ended with {how} {reached}{cause}", location=place, stderr=recording.last_messages
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)


def _weights(port: Recording) -> Iterator[Finding]:
    for event in port.of_kind("weights"):
        if event["action"] == "mismatch":
            yield Finding(
                "TP305",
                Severity.WARNING,
                Safety.REPORT,
                None,
                f"the port could not be given the original's initial weights ({event['name']}): {event['detail']}",
                "The runs start from different numbers; a difference in the loss may come from that alone.",
            )


def _steps(reference: Recording, port: Recording) -> Iterator[Finding]:
    theirs, ours = len(reference.steps), len(port.steps)
    if not theirs and not ours:
        yield _error(
            "TP304",
            "no loss was recorded: there is nothing to compare",
            "A loss is recorded when `backward()` is called. Give the script arguments with which it trains.",
        )
    elif theirs != ours:
        yield _error(
            "TP303",
            f"the original trains {theirs} steps, the port {ours}",
            "Look for conditions on the device, early stops, and files that one run leaves for the next.",
        )


def _not_finite(reference: list[float], port: list[float]) -> Iterator[Finding]:
    ours, theirs = curves.first_not_finite(port), curves.first_not_finite(reference)
    if ours is not None and (theirs is None or ours < theirs):
        value = "NaN" if math.isnan(port[ours]) else "infinite"
        yield _error("TP302", f"the port's loss is {value} at step {ours}; the original's is not", step=ours)
    elif theirs is not None:
        yield Finding(
            "TP302",
            Severity.WARNING,
            Safety.REPORT,
            None,
            f"the original's own loss is not finite at step {theirs}",
            "Steps from there on cannot be compared.",
            {"step": theirs},
        )


def _by_step(
    reference: list[float], port: list[float], errors: list[float], bound: float
) -> Iterator[Finding]:
    step = curves.first_above(errors, bound)
    if step is not None and math.isfinite(errors[step]):
        yield _error(
            "TP301",
            f"the loss differs from step {step} on: {port[step]:.6g} against {reference[step]:.6g}, "
            f"{errors[step]:.1e} relative where {bound:g} is allowed",
            _divergence_hint(errors, step),
            step=step,
        )


def _divergence_hint(errors: list[float], step: int) -> str:
    if step == 0:
        return "The first loss differs already: the forward pass or the data, not the training, is different."
    if max(errors[:step], default=0.0) < 1e-7:
        return f"Up to step {step - 1} the runs agree: look at the backward pass and the optimizer."
    return "The difference grows from step to step: rounding that training amplifies, or a small error in an operator."


def _by_windows(spans: list[curves.Window], bounds: Statistical) -> Iterator[Finding]:
    for span in spans:
        if not span.holds:
            yield _error(
                "TP301",
                f"the mean loss of steps {span.start} to {span.end - 1} differs: {span.port:.4g} against "
                f"{span.reference:.4g}, where chance explains {span.allowed:.2g}",
                f"Allowed are {bounds.sigmas:g} standard errors plus {bounds.relative:.0%} of the mean.",
                step=span.start,
            )
            return


def _metrics(
    reference: Recording, port: Recording, points: float, relative: float | None
) -> list[dict[str, Any]]:
    """The metrics that both print: shares may differ by `points`, others by `relative`; None does not judge
    those."""
    theirs, ours = final_metrics(reference.output), final_metrics(port.output)
    rows = []
    for name in theirs:
        if name in ours:
            allowed = _allowed(theirs[name], points, relative)
            difference = abs(ours[name].value - theirs[name].value)
            both_nan = math.isnan(ours[name].value) and math.isnan(theirs[name].value)
            rows.append(
                {
                    "name": name,
                    "reference": theirs[name].value,
                    "port": ours[name].value,
                    "percent": theirs[name].percent,
                    "allowed": allowed,
                    "holds": allowed is None or both_nan or difference <= allowed,
                }
            )
    return rows


def _allowed(metric: Metric, points: float, relative: float | None) -> float | None:
    # A share is printed as 97.2 %, as 97.2 or as 0.972; half a point of each is the same difference.
    if metric.percent or SHARE.search(metric.name) is not None:
        return points if metric.percent or abs(metric.value) > 1 else points / 100
    # Printed numbers are rounded, usually to four digits.
    return None if relative is None else relative * abs(metric.value) + 1e-4


def _metric_finding(row: dict[str, Any]) -> Finding:
    unit = " %" if row["percent"] else ""
    return _error(
        "TP306",
        f"the last {row['name']} differs: {row['port']:g}{unit} against {row['reference']:g}{unit}, "
        f"where {row['allowed']:.2g} is allowed",
    )


def _median_seconds(recording: Recording) -> float | None:
    seconds = sorted(step.seconds for step in recording.steps if step.seconds is not None)
    return seconds[len(seconds) // 2] if seconds else None


def _comparable(*sides: list[float]) -> int:
    """The number of steps that all sides have, up to the first loss that is not finite."""
    steps = min(map(len, sides))
    ends = (curves.first_not_finite(losses) for losses in sides)
    return min([steps, *(end for end in ends if end is not None)])


def _error(
    code: str, message: str, hint: str = "", *, location: Location | None = None, **evidence: Any
) -> Finding:
    return Finding(code, Severity.ERROR, Safety.REPORT, location, message, hint, evidence)
