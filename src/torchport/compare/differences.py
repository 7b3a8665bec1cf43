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
    step = curve.pair.first
    if step is None or not math.isfinite(curve.errors[step]):  # what is not finite is said by itself
        return
    bound = curve.allowed[step]
    if can_be_amplified_rounding(curve):
        yield step, _amplified_finding(curve, step, bound)
    else:
        yield step, _step_finding(curve, step, bound, alone)


def can_be_amplified_rounding(curve: Curve) -> bool:
    """Whether training may have made the difference out of rounding: in a step of which no control run tells."""
    step = curve.pair.first
    if step is None or step < len(curve.noise or ()) or not math.isfinite(curve.errors[step]):
        return False
    return curves.grows_from_rounding(curve.errors, step, ROUNDING)


def _amplified_finding(curve: Curve, step: int, bound: float) -> Finding:
    return open_finding(
        "TP349",
        f"up to step {step - 1} the runs agree within {max(curve.errors[:step]):.1e}; from step {step} on the "
        f"{curve.what} at {curve.name} differs ({curve.errors[step]:.1e}, where {bound:.2g} is allowed): this "
        "may be rounding that the training amplifies, or a small fault",
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


def _step_finding(curve: Curve, step: int, bound: float, alone: bool) -> Finding:
    return error_finding(
        "TP301",
        f"the {curve.what} at {curve.name} differs from step {step} on: {curve.port[step]:.6g} against "
        f"{curve.reference[step]:.6g}, {curve.errors[step]:.1e} relative where {bound:.2g} is allowed",
        _divergence_hint(curve.errors, step, alone),
        step=step,
    )


def _divergence_hint(errors: list[float], step: int, alone: bool) -> str:
    if step == 0 and not alone:  # D's optimizer may have made a step before G's first loss
        return "The first value differs already: the forward pass, the data, or the update of another loss before it."
    if step == 0:
        return "The first value differs already: the forward pass or the data, not the training, is different."
    if max(errors[:step], default=0.0) < 1e-7:
        return f"Up to step {step - 1} the runs agree: look at the backward pass and the optimizer."
    return "The difference grows from step to step: a small error in an operator, or rounding that training amplifies."


def _window_finding(curve: Curve) -> Iterator[Finding]:
    for span in curve.windows:
        if not span.holds:
            yield error_finding(
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
        yield error_finding(
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
