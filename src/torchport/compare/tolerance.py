"""How far two training runs may differ before we say that they differ.

Two devices round differently, and training amplifies the difference: a perturbation of 1e-7 in the weights of
a ResNet-18 grew to the size of the gradient within 20 steps. How much, the original itself shows: it runs once more,
with noise of one unit in the last place (the control run), and what that changes in it is the yardstick (`yardstick`).
The bounds here are what is allowed whatever the control run shows, and those that hold where there is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torchport.compare.series import CHANGE, GRADIENT, INPUTS, LOSS, OUTPUT, UPLOAD


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds for one precision. Errors are relative to the reference's value (`series.Series.least`)."""

    dtype: str
    floors: Mapping[str, float]  # by kind of quantity: allowed in the steps of the control run whatever it shows
    spread: float  # how many times as far from the original as the control run the port may be
    together: int  # the first steps of the control run that are one sample: noise may be small by chance in one
    resumed: int  # the same of a control run that goes on from states: so many steps of each window
    first_steps: int  # without a control run, or after its steps: how many steps the tight bound covers
    first: float  # relative error of the loss in each of them
    run: float | None  # relative error of the loss in each later step; None: compare the means
    points: float  # difference of a final metric given in percent, in points


# What rounding in another order leaves in a loss, a norm of a gradient, a norm of what an update changed.
_FLOAT32 = {LOSS: 1e-5, OUTPUT: 2e-6, GRADIENT: 1e-4, CHANGE: 1e-4, INPUTS: 1e-5, UPLOAD: 1e-6}
# Half a unit in the last place is 2^-12 and 2^-9; both sides round alike what they compute alike.
_FLOAT16 = {LOSS: 2e-4, OUTPUT: 5e-4, GRADIENT: 1e-3, CHANGE: 1e-3, INPUTS: 5e-4, UPLOAD: 1e-6}
_BFLOAT16 = {LOSS: 1e-3, OUTPUT: 4e-3, GRADIENT: 4e-3, CHANGE: 4e-3, INPUTS: 4e-3, UPLOAD: 1e-6}

# `spread`: the port rounds each sum of a long product in another order, which in float32 moves it by several units in
# the last place; the control run moves the outputs of modules by one. In half precision sums are rounded once, to the
# dtype, so few elements move by more than one unit.
# `first` and `run` of float32 are what two fp32 devices are held to in this project's acceptance tests.
TOLERANCES = {
    row.dtype: row
    for row in (
        Tolerance("float32", _FLOAT32, 20.0, 1, 1, 50, first=1e-4, run=1e-2, points=0.5),
        Tolerance("float16", _FLOAT16, 4.0, 5, 10, 5, first=1e-2, run=None, points=1.5),
        Tolerance("bfloat16", _BFLOAT16, 4.0, 5, 10, 5, first=5e-2, run=None, points=1.5),
    )
}
# Without a control run, norms and uploads are held to this in the first steps.
UNMEASURED: Mapping[str, float] = {GRADIENT: 1e-2, CHANGE: 1e-2, INPUTS: 1e-2, UPLOAD: 1e-4}

# What is printed at the end comes of other data and more arithmetic than a loss: so many times what is allowed there.
PRINTED_TIMES = 10.0
# A training is chaotic where noise in the last place takes its loss away by so much (relative).
CHAOTIC = 1e-2
# So many steps before that have to be there for a word.
LEAST_STEPS = 3
# Relative error that rounding alone explains in the first losses of fp32: some ten roundings of 6e-8.
ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class Statistical:
    """Bounds for runs with random numbers of their own: the mean loss of each window of the run.

    Means may differ by `sigmas` standard errors of the reference's step-to-step noise, plus `relative` of its mean: the
    runs also walk different ways, which noise within a window does not show.
    """

    windows: int = 10
    least: int = 5  # steps that a window has at least
    sigmas: float = 5.0  # the noise itself is estimated, from few steps
    relative: float = 0.03
    points: float = 2.0


STATISTICAL = Statistical()
