"""What the quantities of two runs say: where they part, and whether that speaks against the port."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torchport.compare import curves
from torchport.compare.conditions import error_finding, open_finding
from torchport.compare.curves import Curve
from torchport.compare.quantities import Compared
from torchport.compare.quantities import find_quantity_differences as quantity_differences
from torchport.compare.series import LOSS, OUTPUT
from torchport.compare.tolerance import LEAST_STEPS, ROUNDING, STATISTICAL
from torchport.findings import Finding, Safety, Severity

STEPWISE = "step by step"
STATISTICALLY = "statistically"
MIXED = "step by step at first, then statistically"
# What parts of itself: losses, gradients, updates, and what is not finite.
PARTED = ("TP301", "TP302", "TP354", "TP355")  # TP355 has a step where a GradScaler's scale parts
TOO_FEW = f"Give the script arguments with which it trains at least {STATISTICAL.least} steps, better a hundred."


def curves_of(both: Sequence[Compared]) -> Iterator[Curve]:
    """The losses (or outputs) of all processes, place by place."""
    for one in both:
        for pair in one.select_pairs(LOSS, OUTPUT):
            yield Curve.from_pair(one.prefix + pair.reference.name, pair.key[0], pair, STATISTICAL)


def find_differences(
    pairs: Sequence[Curve], both: Sequence[Compared], apart: Sequence[Compared], method: str, chaotic: int | None
) -> Iterator[Finding]:
    """What the quantities say, each in its own right; the first step where one differs comes first."""
    found: list[tuple[int, Finding]] = []
    judged = 0
    for curve in pairs:
        found += [(finding.evidence["step"], finding) for finding in _not_finite(curve)]
        if not curve.comparable or (method == STATISTICALLY and not curve.windows):
            continue
        judged += 1
        if method != STATISTICALLY:
            found += _step_findings(curve, alone=len(pairs) == 1)
        if not all(map(math.isfinite, curve.allowed)) or method == STATISTICALLY or can_be_amplified_rounding(curve):
            found += [(finding.evidence["step"], finding) for finding in _window_finding(curve)]
    if method != STATISTICALLY:
        found += quantity_differences(both)
        found += [finding for curve in curves_of(apart) for finding in _step_findings(curve)]
        found += quantity_differences(apart)
    yield from (finding for _, finding in sorted(found, key=lambda row: row[0]))
    if pairs and not judged:
        steps = max(curve.comparable for curve in pairs)
        what = "compare statistically" if method == STATISTICALLY else "compare"
        yield open_finding("TP304", f"too few steps to {what}: {steps}", TOO_FEW)
    if chaotic is not None and not apart and chaotic < LEAST_STEPS:
        yield _chaotic_finding(chaotic)


def _step_findings(curve: Curve, *, alone: bool = False) -> Iterator[tuple[int, Finding]]:
    place = curve.pair.first
    if place is None or not math.isfinite(curve.errors[place]):  # what is not finite is said by itself
        return
    make = _amplified_finding(curve, place) if can_be_amplified_rounding(curve) else _step_finding(curve, place, alone)
    yield curve.find_step(place), make


def can_be_amplified_rounding(curve: Curve) -> bool:
    """Whether training may have made the difference out of rounding: in a step of which no control run tells."""
    place = curve.pair.first
    if place is None or place < len(curve.noise or ()) or not math.isfinite(curve.errors[place]):
        return False
    return curves.grows_from_rounding(curve.errors, place, ROUNDING)


def _amplified_finding(curve: Curve, place: int) -> Finding:
    step = curve.find_step(place)
    return open_finding(
        "TP349",
        f"up to step {curve.find_step(place - 1)} the runs agree within {max(curve.errors[:place]):.1e}; from step "
        f"{step} on the {curve.what} at {curve.name} differs ({curve.errors[place]:.1e}, where "
        f"{curve.allowed[place]:.2g} is allowed): this may be rounding that the training amplifies, or a small fault",
        f"Compare what comes before with --steps {step}, or give the script a smaller learning rate.",
        step=step,
    )


def _chaotic_finding(step: int) -> Finding:
    return open_finding(
        "TP349",
        f"rounding alone takes the original another way within {step} steps: too few to compare",
        "Give the script a smaller learning rate, or a larger batch.",
        step=step,
    )


def _step_finding(curve: Curve, place: int, alone: bool) -> Finding:
    step = curve.find_step(place)
    return error_finding(
        "TP301",
        f"the {curve.what} at {curve.name} differs from step {step} on: {curve.port[place]:.6g} against "
        f"{curve.reference[place]:.6g}, {curve.errors[place]:.1e} relative where {curve.allowed[place]:.2g} is allowed",
        _divergence_hint(curve, place, alone),
        step=step,
    )


def _divergence_hint(curve: Curve, place: int, alone: bool) -> str:
    if place == 0 and (not alone or curve.find_step(0) > 0):  # D's optimizer may have made a step before G's first loss
        return "The first value differs already: the forward pass, the data, or the update of another loss before it."
    if place == 0:
        return "The first value differs already: the forward pass or the data, not the training, is different."
    if max(curve.errors[:place], default=0.0) < 1e-7:
        before = curve.find_step(place - 1)
        return f"Up to step {before} the runs agree: look at the backward pass and the optimizer."
    return "The difference grows from step to step: a small error in an operator, or rounding that training amplifies."


def _window_finding(curve: Curve) -> Iterator[Finding]:
    for span in curve.windows:
        if not span.holds:
            yield error_finding(
                "TP301",
                f"the mean {curve.what} at {curve.name} of steps {curve.find_step(span.start)} to "
                f"{curve.find_step(span.end - 1)} differs: {span.port:.4g} against {span.reference:.4g}, where chance "
                f"explains {span.allowed:.2g}",
                f"Allowed are {STATISTICAL.sigmas:g} standard errors plus {STATISTICAL.relative:.0%} of the mean.",
                step=curve.find_step(span.start),
            )
            return


def _not_finite(curve: Curve) -> Iterator[Finding]:
    ours, theirs = curves.first_not_finite(curve.port), curves.first_not_finite(curve.reference)
    if ours is not None and (theirs is None or ours < theirs):
        value = "NaN" if math.isnan(curve.port[ours]) else "infinite"
        step = curve.find_step(ours)
        yield error_finding(
            "TP302",
            f"the port's {curve.what} at {curve.name} is {value} at step {step}; the original's is not",
            step=step,
        )
    elif theirs is not None:
        step = curve.find_step(theirs)
        yield Finding(
            "TP302",
            Severity.WARNING,
            Safety.REPORT,
            None,
            f"the original's own {curve.what} at {curve.name} is not finite at step {step}",
            "Steps from there on cannot be compared.",
            {"step": step},
        )


def find_parting_step(findings: Sequence[Finding]) -> int | None:
    """The first step in which the runs part; None where they do not, or nobody knows in which."""
    steps = [
        int(finding.evidence["step"])
        for finding in findings
        if finding.code in PARTED
        and finding.severity == Severity.ERROR
        and finding.evidence
        and "step" in finding.evidence
    ]
    return min(steps, default=None)
