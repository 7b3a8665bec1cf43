"""A learning-rate schedule belongs to the optimizer that steps, and leaves it a learning rate."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.patches import Patches
from torchport.record import releases
from torchport.record.invariants.rule import Rule

LEAST = 5  # steps
ZERO = 10  # steps with a learning rate of 0: a warm-up has one


class Schedules(Rule):
    """Schedules change the rate of an optimizer that steps, and it steps with the rate that they set."""

    name = "the learning rate follows its schedule"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._stepped: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._scheduled: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._zero: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        # By optimizer: the learning rates that its schedules have set since its last step.
        self._set: weakref.WeakKeyDictionary[Any, list[list[float]]] = weakref.WeakKeyDictionary()
        self._other: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """See schedules step."""
        for kind in (releases.find_scheduler(self.torch), self.torch.optim.lr_scheduler.ReduceLROnPlateau):
            if "step" in vars(kind):
                patches.wrap(kind, "step", self._stepping)

    def _stepping(self, original: Any) -> Any:
        def step(this: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(this, *args, **kwargs)
            optimizer = getattr(this, "optimizer", None)
            if optimizer is not None and not getattr(this, "_is_initial", False):
                self._look(this, optimizer)
            return result

        return step

    def _look(self, schedule: Any, optimizer: Any) -> None:
        self.judged += 1
        self._set.setdefault(optimizer, []).append([float(group["lr"]) for group in optimizer.param_groups])
        count = self._scheduled[schedule] = self._scheduled.get(schedule, 0) + 1
        others = [one for one, steps in self._stepped.items() if one is not optimizer and steps >= LEAST]
        if count > LEAST and others and not self._stepped.get(optimizer) and not _wraps(optimizer, others):
            self.report(
                f"other {id(schedule)}",
                f"{type(schedule).__name__} changes the learning rate of an optimizer that has not stepped once in "
                f"{self.steps} steps, and another one steps",
                self.find_site(),
                0,
            )

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        """Whether it steps with what its schedule has just set."""
        rates = [float(group.get("lr", 0.0)) for group in optimizer.param_groups]
        known = self._set.pop(optimizer, None)
        if known is None:
            return
        self._other[optimizer] = 0 if rates == known[-1] else self._other.get(optimizer, 0) + 1
        if self._other[optimizer] == LEAST:
            self.report(
                f"overwritten {number}",
                f"optimizer {number} ({type(optimizer).__name__}) steps with learning rate {rates[0]:g}, where its "
                f"schedule has just set {known[-1][0]:g}, {LEAST} times in a row",
                self.find_site(),
                step - LEAST + 1,
            )

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Which one steps, and with what."""
        super().on_step_end(optimizer, number, step)
        self._stepped[optimizer] = self._stepped.get(optimizer, 0) + 1
        rates = [group.get("lr") for group in optimizer.param_groups]
        if rates and all(isinstance(rate, (int, float)) and rate == 0 for rate in rates):
            self._zero[optimizer] = self._zero.get(optimizer, 0) + 1
            if self._zero[optimizer] == ZERO and self._stepped[optimizer] == ZERO:
                self.report(
                    f"zero {number}",
                    f"optimizer {number} ({type(optimizer).__name__}) has stepped {ZERO} times with a learning rate "
                    "of 0 from the beginning",
                    self.find_site(),
                    0,
                )


def _wraps(optimizer: Any, others: list[Any]) -> bool:
    """Whether it is a wrapper of one that steps (accelerate), or shares its groups."""
    inner = getattr(optimizer, "optimizer", None)
    return any(one is inner or one.param_groups is optimizer.param_groups for one in others)
