"""The device's own random numbers: drawn once beside those of the run, and measured.

The numbers that a run computes with are ours, so that nothing of the device's own draws would be seen: not that they
have another distribution, nor that the device cannot draw at all. So at the first draw of each kind the kernel that
ours stands for is called with the same arguments on tensors of its own, and what it gives is recorded. The script's
tensors and all streams and generators are as if it had not been.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchport.record.draws.trials import Drawn, Trial, Trials

if TYPE_CHECKING:
    from torchport.record.draws.draws import Draws
    from torchport.record.draws.kernels import Kernels

MOST_KINDS = 100  # trials of a process
MOST_EACH = 8  # of one operator and dtype: layers of many sizes draw their weights with a bound each
LOOKS = 100  # how often the place of one kind of draw is looked up
ENOUGH, REPEATS = 1000, 32  # so many numbers are asked for, by so many calls at most


class OwnDraws:
    """Stands before `kernels`: replaces kernels as they do, and tries what was there first.

    Each trial is told to `drawn(operator, site, dtype, count, mean, variance, expected_mean, expected_variance, ...)`:
    moments of the numbers, `variance` about their expected mean; `kurtosis`, `expected_least` and `expected_most` are
    those of their law (`laws.Law`), `rounding` what the dtype may add to each, `problem` what is wrong beyond
    statistics. `error` is what the device's kernel raised, None where it did not.
    """

    def __init__(self, draws: Draws, kernels: Kernels, drawn: Callable[..., None]) -> None:
        self._draws = draws
        self._kernels = kernels
        self._drawn = drawn
        self._trials = Trials(draws._torch)
        self._trying = threading.local()
        self._known: set[tuple[Any, ...]] = set()
        self._looks: Counter[tuple[Any, ...]] = Counter()
        self._numbers: Counter[tuple[str, str]] = Counter()

    def has_kernel(self, operator: str, key: str) -> bool:
        """As `Kernels.has_kernel`."""
        return self._kernels.has_kernel(operator, key)

    def replace_kernel(self, operator: str, key: str, function: Callable[..., Any]) -> None:
        """As `Kernels.replace_kernel`; on the accelerator, `original` is tried first."""
        trial_of = self._trials.find_trial_method(operator) if str(key).endswith(str(self._draws.accelerator)) else None

        def kernel(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if getattr(self._trying, "now", False):  # the device's kernel calls others: they are the device's, too
                return original(*args, **kwargs)
            trial = trial_of(*args, **kwargs) if trial_of is not None and len(self._known) < MOST_KINDS else None
            found = self._tried(operator, trial, original, args, kwargs) if trial is not None else None
            result = function(original, *args, **kwargs)
            if found is not None:  # not what the script may not ask for either
                self._drawn(**found)
            return result

        self._kernels.replace_kernel(operator, key, kernel)

    def _tried(self, operator: str, trial: Trial, original: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
        kind, family = (operator, trial.dtype, trial.parameters), (operator, trial.dtype)
        if self._looks[kind] >= LOOKS or self._numbers[family] >= MOST_EACH or self._draws.is_capturing():
            return None
        self._looks[kind] += 1
        known = (*kind, site := self._draws.site())
        if known in self._known:
            return None
        self._known.add(known)
        self._numbers[family] += 1
        event = {"operator": operator.removeprefix("aten::"), "site": site, "dtype": trial.dtype}
        try:
            found = self._unseen(lambda: _repeated(trial, original), (*args, *kwargs.values()))
        except Exception as error:
            # The script's own draw meets a full memory too, and says so; anything else our kernel would hide.
            if re.search("out of memory|allocate memory|enough memory", str(error)):
                return None
            nothing = dict.fromkeys(("mean", "variance", "expected_mean", "expected_variance"), float("nan"))
            return event | nothing | {"count": 0, "error": error}
        return event | found if found else None

    def _unseen(self, measure: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """What `measure` gives, with the device's kernels as they are by themselves; generators are put back."""
        torch = self._draws._torch
        results: list[Any] = []

        def call(zero: float) -> float:
            results.append(measure())
            return zero

        self._trying.now = True
        try:
            with (
                self._draws.generators.put_back(arguments),
                torch.no_grad(),
                torch._C.DisableTorchFunction(),
                warnings.catch_warnings(action="ignore"),  # the script may have made errors of them
            ):
                # Kernels' warnings are held back until torch returns to Python: here, because `apply_` calls it, and
                # not where the script's call ends.
                torch.zeros((), device="cpu").apply_(call)
        finally:
            self._trying.now = False
        return results[0]


def _repeated(trial: Trial, original: Callable[..., Any]) -> dict[str, Any]:
    """What as many calls give as it takes, {} where there is nothing to measure."""
    found: list[Drawn] = []
    while len(found) < REPEATS and sum(one.numbers.numel() for one in found) < ENOUGH:
        drawn = trial.draw(original)
        if drawn is None or not drawn.numbers.numel():
            break
        found.append(drawn)
    return _measured(found) if found else {}


def _measured(found: list[Drawn]) -> dict[str, Any]:
    law, count = found[0].law, sum(one.numbers.numel() for one in found)
    return {
        "count": count,
        "mean": sum(float(one.numbers.sum()) for one in found) / count,
        "variance": sum(float(((one.numbers - law.mean) ** 2).sum()) for one in found) / count,
        "expected_mean": law.mean,
        "expected_variance": law.variance,
        "kurtosis": law.kurtosis,
        "rounding": found[0].rounding,
        "least": min(float(one.numbers.min()) for one in found),
        "most": max(float(one.numbers.max()) for one in found),
        "expected_least": law.least,
        "expected_most": law.most,
        "problem": next((one.problem for one in found if one.problem), ""),
        "error": None,
    }
