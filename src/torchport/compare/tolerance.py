"""How far two training runs may differ before we say that they differ.

Two devices round differently, and training amplifies the difference: a perturbation of 1e-7 in the weights of
a ResNet-18 grew to the size of the gradient within 20 steps. So the first steps are held to a tight bound,
the run as a whole to a loose one, and runs that draw random numbers on the device only to what chance
explains.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds for one precision. Errors are relative to the reference's loss, or to `floor` times its first
    loss where the loss has become smaller than that."""

    dtype: str
    first_steps: int  # how many steps the tight bound covers
    first: float  # relative error of the loss in each of the first steps
    run: (
        float | None
    )  # relative error of the loss in each step of the run; None: compare the run statistically
    points: float  # difference of a final metric given in percent, in points
    floor: float = 1e-3
    rounding: float = 0.0  # relative error that rounding alone explains in the first losses; 0: not asked


# Rounding of float32 is 6e-8 for one operation; 1e-6 is what some ten of them, in the loss of a batch, leave.
# float32: what two fp32 devices are held to in this project's acceptance tests.
# float16 and bfloat16: measured when the reference was still fp32. Half a unit in their last place is 2^-12 and 2^-9
# relative for each rounding; training amplifies that from 1e-4 in the first step to 9e-2 within 50 steps of the digits
# example in fp16. The reference rounds as well now, and is closer: the bounds are loose.
TOLERANCES = {
    row.dtype: row
    for row in (
        Tolerance("float32", 50, first=1e-4, run=1e-2, points=0.5, rounding=1e-6),
        Tolerance("float16", 5, first=1e-2, run=None, points=1.5),
        Tolerance("bfloat16", 5, first=5e-2, run=None, points=1.5),
    )
}


# Where rounding decides what a training computes, the original itself is the yardstick: it runs again with weights that
# are moved by one unit in the last place, and with another number of threads. The port's rounding is another in every
# operator and step, so it may be this many times as far from the original as that run is.
SPREAD = 20.0
# From the step where that run itself leaves the original by so much (relative), steps say nothing any more.
CHAOTIC = 1e-2
# So many steps before that have to be there for a word.
LEAST_STEPS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Statistical:
    """Bounds for runs with random numbers of their own: the mean loss of each window of the run.

    Means may differ by `sigmas` standard errors of the step-to-step noise, plus `relative` of the reference's
    mean: the runs also walk different ways, which noise within a window does not show.
    """

    windows: int = 10
    least: int = 5  # steps that a window has at least
    sigmas: float = 4.0
    relative: float = 0.03
    points: float = 2.0


STATISTICAL = Statistical()
