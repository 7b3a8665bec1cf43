"""Weights move when an optimizer steps."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

from torchport.record.invariants.rule import Rule, get_local
from torchport.record.names import list_parameters

NUMBERS = 2**14  # of each parameter
MOST = 2**24  # of all: parameters beyond are not looked at
LOOKED = 24  # steps of an optimizer
LEAST, ALONE = 4, 8  # steps in which no parameter has moved, or one alone
SHARE = 0.02  # of numbers that move: fewer are lost in rounding
SMALL = 1e-3  # of the largest gradient (rms): below it a gradient may be rounding, which moves nothing
SHOWN = 3


@dataclasses.dataclass(slots=True)
class _Followed:
    """Of one optimizer: steps that were looked at, its learning rate, and for each parameter in how many steps in a row
    it has not moved (-1: it moves)."""

    looked: int = 0
    rate: float = 0.0
    still: dict[int, int] = dataclasses.field(default_factory=dict)
    none: int = 0


class Updates(Rule):
    """A step with gradients and a learning rate changes the parameters, each that has a gradient which counts. In
    float16 and bfloat16 an update that is below half a unit in the last place is lost."""

    name = "weights move"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._before: list[tuple[int, Any, Any]] = []
        self._followed: weakref.WeakKeyDictionary[Any, _Followed] = weakref.WeakKeyDictionary()

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        """Keep some numbers of each parameter."""
        self._before = []
        followed = self._followed.setdefault(optimizer, _Followed())
        rates = [float(group.get("lr", 1.0)) for group in optimizer.param_groups]
        rate, warms_up = max(rates, default=0.0), max(rates, default=0.0) > followed.rate > 0
        followed.rate = rate
        if followed.looked >= LOOKED or not all(rates) or self._is_skipped(optimizer):
            return
        if warms_up:  # the first, tiny updates may be lost
            followed.still.clear()
            followed.none = 0
        followed.looked += 1
        total = 0
        with self.torch.no_grad():
            for place, one in enumerate(list_parameters(optimizer)):
                total += min(one.numel(), NUMBERS)
                if total > MOST:
                    return
                if one.requires_grad and not one.is_sparse:
                    self._before.append((place, one, _take(one).clone()))

    def _is_skipped(self, optimizer: Any) -> bool:
        """Whether a fused optimizer leaves this step out by itself: a GradScaler has found infinities."""
        found = getattr(optimizer, "found_inf", None)
        return found is not None and bool(found.item() if self.torch.is_tensor(found) else found)

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """How many of them have changed."""
        super().on_step_end(optimizer, number, step)
        before, self._before = self._before, []
        with self.torch.no_grad():
            rows = [(place, one, *_measure(one, kept)) for place, one, kept in before if _has_gradient(one)]
        large = SMALL * max((size for _, _, size, _ in rows), default=0.0)
        rows = [row for row in rows if row[2] > large]
        if not rows:
            return
        self.judged += 1
        followed = self._followed[optimizer]
        self._judge_all(optimizer, number, step, followed, rows)
        for place, _, _, share in rows:
            known = followed.still.get(place, 0)
            followed.still[place] = -1 if share or known < 0 else known + 1
        if followed.none:
            return
        stuck = [(place, one) for place, one, _, _ in rows if followed.still[place] == ALONE]
        if stuck:
            shown = ", ".join(self.find_name(one) or f"parameter {place}" for place, one in stuck[:SHOWN])
            self.report(
                f"some {number}",
                f"{len(stuck)} of {len(rows)} parameters of optimizer {number} ({type(optimizer).__name__}) have not "
                f"changed in {ALONE} steps, though they have gradients ({shown})"
                f"{_name_precision([one for _, one in stuck])}",
                self.find_site(),
                step - ALONE + 1,
            )

    def _judge_all(self, optimizer: Any, number: int, step: int, followed: _Followed, rows: Sequence[Any]) -> None:
        moved = max(row[3] for row in rows)
        followed.none = 0 if moved > SHARE else followed.none + 1
        if followed.none == LEAST:
            self.report(
                f"all {number}",
                f"optimizer {number} ({type(optimizer).__name__}): at most {moved:.1%} of the numbers of any parameter "
                f"change in a step, though they have gradients{_name_precision([row[1] for row in rows])}",
                self.find_site(),
                step - LEAST + 1,
            )


def _name_precision(parameters: Sequence[Any]) -> str:
    half = {str(one.dtype).removeprefix("torch.") for one in parameters} & {"float16", "bfloat16"}
    if not half:
        return ""
    return (
        f": in {' and '.join(sorted(half))} an update below half a unit in the last place is lost. Keep the weights in "
        "float32"
    )


def _has_gradient(parameter: Any) -> bool:
    return parameter.grad is not None and not parameter.grad.is_sparse


def _measure(parameter: Any, kept: Any) -> tuple[float, float]:
    """The root mean square of its gradient, where it has one, and the share of those numbers that are others now."""
    gradient = _take(parameter.grad)
    given = gradient != 0
    count = float(given.sum())
    if not count:
        return 0.0, 0.0
    size = float(gradient.float().square().sum()) / count
    return size**0.5, float(((_take(parameter) != kept) & given).sum()) / count


def _take(tensor: Any) -> Any:
    return get_local(tensor).flatten()[:NUMBERS]
