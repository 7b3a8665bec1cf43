"""The verdict on a port, from the recordings of the original and of the port."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from torchport.compare import conditions, curves
from torchport.compare.conditions import error, open_finding
from torchport.compare.curves import Curve
from torchport.compare.metrics import compare_metrics
from torchport.compare.tolerance import (
    CHAOTIC,
    LEAST_STEPS,
    SPREAD,
    STATISTICAL,
    TOLERANCES,
    Statistical,
    Tolerance,
)
from torchport.compare.verdict import Verdict
from torchport.findings import Finding, Result, Safety, Severity
from torchport.record.recording import CALL, OPTIMIZER, Process, Recording

# The loosest precision that either side used decides; float32 where none is recorded.
LOOSEST = ("bfloat16", "float16", "float32")

STEPWISE = "step by step"
STATISTICALLY = "statistically"
MIXED = "step by step at first, then statistically"
TOO_FEW = (
    f"Give the script arguments with which it trains at least {STATISTICAL.least} steps, better a hundred."
)


def compare(
    reference: Recording, port: Recording, *, on_npu: bool = False, noisy: Recording | None = None
) -> Result:
    """Judge `port` against `reference`; with `on_npu` the second has to have run on an NPU. `noisy` is a run of the
    original with rounding noise in its weights, the yardstick where training amplifies rounding (a finding TP349 of a
    comparison without it asks for one).

    `data["verdict"]`, `data["reason"]` and `data["decide"]` are the verdict (`verdict.Verdict`). What it rests on:
    `data["curves"]`, a list with the losses of both sides, their errors and windows for each call site and rank;
    `data["errors"]`, the worst error of each step; `data["metrics"]`, `data["evidence"]`, `data["tolerance"]`, and
    `data["method"]`, how the bounds were applied: STEPWISE, or STATISTICALLY where the runs draw random numbers of
    their own, or MIXED for half precision.
    """
    tolerance = _tolerance(reference, port)
    chance = _chance(reference, port)
    method = STATISTICALLY if chance else STEPWISE if tolerance.run is not None else MIXED
    pairs = list(_pairs(reference, port, tolerance.floor, noisy))
    # What a run with random numbers of its own prints at its end, or one that has gone another way, is another number.
    apart = bool(chance) or any(
        _amplified(curve, method, tolerance) or _judged(curve) < len(curve.errors) for curve in pairs
    )
    metrics = compare_metrics(
        reference.output,
        port.output,
        STATISTICAL.points if apart else tolerance.points,
        None if apart else tolerance.run,
    )
    # A schedule may follow the loss (ReduceLROnPlateau), which says nothing where the loss does not.
    chaotic = any(_judged(curve) < len(curve.errors) for curve in pairs)
    ended_well = not conditions.failed(port) and not port.stopped
    findings = [
        *conditions.reference_conditions(reference),
        *conditions.step_conditions(reference, port),
        *conditions.port_conditions(reference, port),
        *(conditions.use_of_npu(reference, port) if on_npu and reference.steps else ()),
        *(conditions.settings_equal(reference, port) if not chaotic else ()),
        *conditions.replicas_equal(port),
        *_weights(port),
        *(_information(reason, tolerance) for reason in chance),
        *_curves(pairs, method, tolerance),
        *_other_sites(reference, port),
        *(_metric_finding(row) for row in metrics if not row["holds"] and ended_well),
    ]
    number = min(reference.steps, port.steps)
    kind = reference.trained[0].step_kind if reference.trained else OPTIMIZER
    grounds = f"{_count(number, kind)} compared {method}, {tolerance.dtype}{_limits(pairs)}"
    verdict = Verdict.of(findings, grounds)
    data = {
        "verdict": str(verdict.word),
        "reason": verdict.reason,
        "decide": list(verdict.decide),
        "method": method,
        "chance": chance,
        "tolerance": {name: getattr(tolerance, name) for name in Tolerance.__slots__},
        "statistical": {name: getattr(STATISTICAL, name) for name in Statistical.__slots__},
        "steps": {"kind": kind, "reference": reference.steps, "port": port.steps},
        "worst": _worst(pairs, tolerance),
        "seconds": {"reference": _median_seconds(reference), "port": _median_seconds(port)},
        "curves": [_data_of(curve, method, tolerance) for curve in pairs],
        "errors": _by_step(pairs),
        "metrics": metrics,
        "evidence": [conditions.evidence(process) for process in port.trained],
    }
    return Result("compare", tuple(findings), data)


def _limits(pairs: list[Curve]) -> str:
    """How far the step-by-step comparison reaches where rounding decides, in words that follow the grounds."""
    ends = [end for curve in pairs if (end := _judged(curve)) < len(curve.errors)]
    if not ends:
        return ""
    return (
        f"; from step {min(ends)} on by means only: rounding alone takes the original another way, as a run of it with "
        "one unit in the last place of its weights changed shows"
    )


def _pairs(reference: Recording, port: Recording, floor: float, noisy: Recording | None) -> Iterator[Curve]:
    """The curves that both sides have: rank by rank, call site by call site."""
    moved = [process.curves() for process in noisy.trained] if noisy is not None else []
    several = len(reference.trained) > 1
    for rank, (theirs, ours) in enumerate(zip(reference.trained, port.trained, strict=False)):
        prefix = f"rank {theirs.rank}, " if several and theirs.rank is not None else ""
        what = "output" if theirs.step_kind == CALL else "loss"
        found = ours.curves()
        for site, losses in theirs.curves().items():
            if site in found:
                noise = moved[rank].get(site) if rank < len(moved) else None
                yield Curve.of(prefix + site, what, losses, found[site], floor, STATISTICAL, noise)


def _other_sites(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Call sites that one of the runs did not come by."""
    if conditions.failed(reference) or conditions.failed(port) or port.stopped in ("timeout", "memory"):
        return
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        for who, here, there in (("the original", theirs, ours), ("the port", ours, theirs)):
            for site in here.curves():
                if site not in there.curves() and here.steps and there.steps:
                    yield error(
                        "TP303",
                        f"only {who} comes by {site}, where {_what(here)} is computed",
                        "Look for branches on the device.",
                    )


def _what(process: Process) -> str:
    return "an output" if process.step_kind == CALL else "a loss"


def _tolerance(*recordings: Recording) -> Tolerance:
    used = {event["dtype"] for recording in recordings for event in recording.of_kind("precision")}
    return TOLERANCES[next(dtype for dtype in LOOSEST if dtype in used or dtype == "float32")]


def _chance(reference: Recording, port: Recording) -> list[str]:
    """Why the two runs cannot be equal step by step: what each leaves to chance."""
    reasons = sorted(
        {event["detail"] for recording in (reference, port) for event in recording.of_kind("random")}
    )
    seeds = [
        [
            [(event["of"], event["value"]) for event in process.of_kind("seed")]
            for process in recording.trained
        ]
        for recording in (reference, port)
    ]
    if seeds[0] != seeds[1] and not conditions.failed(port):
        reasons.append("the script seeds its generators differently in each run")
    return reasons


def _information(reason: str, tolerance: Tolerance) -> Finding:
    return Finding(
        "TP320",
        Severity.INFO,
        Safety.REPORT,
        None,
        f"the runs are compared statistically: {reason}",
        "The mean loss of each tenth of the run is compared. Without such draws the comparison is step by step, "
        f"to {tolerance.first:g} relative.",
    )


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


def _curves(pairs: Iterable[Curve], method: str, tolerance: Tolerance) -> Iterator[Finding]:
    """What the curves say, each in its own right; the first step where one differs comes first."""
    found: list[tuple[int, Finding]] = []
    judged = 0
    pairs = list(pairs)
    for curve in pairs:
        for finding in _not_finite(curve):
            found.append((finding.evidence["step"], finding))
        if not curve.comparable or (method == STATISTICALLY and not curve.windows):
            continue
        judged += 1
        alone = len(pairs) == 1
        found += [(finding.evidence["step"], finding) for finding in _curve(curve, method, tolerance, alone)]
    yield from (finding for _, finding in sorted(found, key=lambda pair: pair[0]))
    if pairs and not judged:
        steps = max(curve.comparable for curve in pairs)
        what = "compare" if method == STEPWISE else "compare statistically"
        yield open_finding("TP304", f"too few steps to {what}: {steps}", TOO_FEW)


def _curve(curve: Curve, method: str, tolerance: Tolerance, alone: bool) -> Iterator[Finding]:
    if method == STATISTICALLY:
        yield from _window_finding(curve)
        return
    differing = _differing(curve, method, tolerance)
    end = _judged(curve)
    if differing is not None and _amplified(curve, method, tolerance):
        yield _amplified_finding(curve, *differing)
    elif differing is not None:
        yield _step_finding(curve, *differing, alone)
    elif end < min(LEAST_STEPS, len(curve.errors)):
        yield _chaotic_finding(curve, end)
    if method == MIXED or end < len(curve.errors) or _amplified(curve, method, tolerance):
        yield from _window_finding(curve)


def _judged(curve: Curve) -> int:
    """How many steps say something: those before rounding alone takes the original another way."""
    if curve.noise is None:
        return len(curve.errors)
    return next((step for step, noise in enumerate(curve.noise) if not noise <= CHAOTIC), len(curve.errors))


def _allowed(curve: Curve, step: int, method: str, tolerance: Tolerance) -> float:
    """The bound of the error in a step; infinite where the step is not judged by itself."""
    if step >= _judged(curve) or (method == MIXED and step >= tolerance.first_steps):
        return math.inf
    bound = tolerance.first if step < tolerance.first_steps else tolerance.run or 0.0
    noise = curve.noise[min(step, len(curve.noise) - 1)] if curve.noise else 0.0
    return max(bound, SPREAD * noise)


def _differing(curve: Curve, method: str, tolerance: Tolerance) -> tuple[int, float] | None:
    """The first step whose error is above its bound, and the bound; None too where that error is not finite."""
    for step, difference in enumerate(curve.errors):
        bound = _allowed(curve, step, method, tolerance)
        if difference > bound:
            return (step, bound) if math.isfinite(difference) else None
    return None


def _data_of(curve: Curve, method: str, tolerance: Tolerance) -> dict[str, Any]:
    """The curve as plain values, with the bounds of its steps where rounding was measured."""
    if curve.noise is None:
        return curve.to_json()
    steps = range(len(curve.errors))
    return curve.to_json() | {"allowed": [_allowed(curve, step, method, tolerance) for step in steps]}


def _amplified(curve: Curve, method: str, tolerance: Tolerance) -> bool:
    """Whether training may have made the difference out of rounding."""
    differing = _differing(curve, method, tolerance) if method == STEPWISE and curve.noise is None else None
    return differing is not None and curves.grows_from_rounding(
        curve.errors, differing[0], tolerance.rounding
    )


def _amplified_finding(curve: Curve, step: int, bound: float) -> Finding:
    return open_finding(
        "TP349",
        f"up to step {step - 1} the runs agree within {max(curve.errors[:step]):.1e}; from step {step} on the "
        f"{curve.what} at {curve.name} differs ({curve.errors[step]:.1e}, where {bound:g} is allowed): this "
        "may be rounding that the training amplifies, or a small fault",
        f"Compare what comes before with --steps {step}, or give the script a smaller learning rate.",
        step=step,
    )


def _chaotic_finding(curve: Curve, end: int) -> Finding:
    return open_finding(
        "TP349",
        f"rounding alone takes the original another way within {end} steps (the {curve.what} at {curve.name}): too "
        "few to compare",
        "Give the script a smaller learning rate, or a larger batch.",
        step=end,
    )


def _step_finding(curve: Curve, step: int, bound: float, alone: bool) -> Finding:
    return error(
        "TP301",
        f"the {curve.what} at {curve.name} differs from step {step} on: {curve.port[step]:.6g} against "
        f"{curve.reference[step]:.6g}, {curve.errors[step]:.1e} relative where {bound:g} is allowed",
        _divergence_hint(curve.errors, step, alone),
        step=step,
    )


def _divergence_hint(errors: list[float], step: int, alone: bool) -> str:
    if step == 0 and not alone:  # D's optimizer may have made a step before G's first loss
        return "The first value differs already: the forward pass, the data, or the update of another loss before it."
    if step == 0:
        return (
            "The first value differs already: the forward pass or the data, not the training, is different."
        )
    if max(errors[:step], default=0.0) < 1e-7:
        return f"Up to step {step - 1} the runs agree: look at the backward pass and the optimizer."
    return "The difference grows from step to step: a small error in an operator, or rounding that training amplifies."


def _window_finding(curve: Curve) -> Iterator[Finding]:
    for span in curve.windows:
        if not span.holds:
            yield error(
                "TP301",
                f"the mean {curve.what} at {curve.name} of steps {span.start} to {span.end - 1} differs: "
                f"{span.port:.4g} against {span.reference:.4g}, where chance explains {span.allowed:.2g}",
                f"Allowed are {STATISTICAL.sigmas:g} standard errors plus {STATISTICAL.relative:.0%} of the mean.",
                step=span.start,
            )
            return


def _not_finite(curve: Curve) -> Iterator[Finding]:
    ours, theirs = curves.first_not_finite(curve.port), curves.first_not_finite(curve.reference)
    if ours is not None and (theirs is None or ours < theirs):
        value = "NaN" if math.isnan(curve.port[ours]) else "infinite"
        yield error(
            "TP302",
            f"the port's {curve.what} at {curve.name} is {value} at step {ours}; the original's is not",
            step=ours,
        )
    elif theirs is not None:
        yield Finding(
            "TP302",
            Severity.WARNING,
            Safety.REPORT,
            None,
            f"the original's own {curve.what} at {curve.name} is not finite at step {theirs}",
            "Steps from there on cannot be compared.",
            {"step": theirs},
        )


def _metric_finding(row: dict[str, Any]) -> Finding:
    unit = " %" if row["percent"] else ""
    return error(
        "TP306",
        f"the last {row['name']} differs: {row['port']:g}{unit} against {row['reference']:g}{unit}, "
        f"where {row['allowed']:.2g} is allowed",
    )


def _worst(pairs: list[Curve], tolerance: Tolerance) -> dict[str, float | None]:
    first = [error for curve in pairs for error in curve.errors[: tolerance.first_steps]]
    return {
        "first": max(first, default=None),
        "run": max((error for curve in pairs for error in curve.errors), default=None),
    }


def _by_step(pairs: list[Curve]) -> list[float]:
    longest = max((len(curve.errors) for curve in pairs), default=0)
    return [max(curve.errors[step] for curve in pairs if step < len(curve.errors)) for step in range(longest)]


def _median_seconds(recording: Recording) -> float | None:
    """Of a step, from one to the next."""
    seconds: list[float] = []
    for process in recording.trained[:1]:
        times = [float(event["elapsed"]) for event in process.steps if "elapsed" in event]
        seconds = sorted(after - before for before, after in pairwise(times))
    return seconds[len(seconds) // 2] if seconds else None


def _count(number: int, kind: str) -> str:
    return f"{number} {kind}{'' if number == 1 else 'es' if kind.endswith('s') else 's'}"
