"""What would fit where memory is out: each change is tried in a dry run of its own, not only named."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from torchport.predict import memory, runs, trials
from torchport.predict.runs import Plan
from torchport.results.prediction import Trial

_BATCH = re.compile(r"-{1,2}(?:[\w-]*[-_])?(?:batch[-_]?size|bs|batch|b)$")
_WORDS = {
    trials.FOREACH: "the optimizer without foreach (foreach=False)",
    trials.RECOMPUTE: "recomputation of the repeated blocks (torch.utils.checkpoint)",
}
MOST_HALVES = 4
SHARDS = 8
LEAST_GAIN = 0.02  # of the peak: what saves less is no advice


def try_changes(plan: Plan, say: Callable[[str], None]) -> list[Trial]:
    """The changes that were tried, with whether each fits and its peak in bytes (None: memory was out again)."""
    found = [_try(plan, trial, words, say) for trial, words in _WORDS.items()]
    found += _smaller(plan, say)
    found += _sharded(found)
    return found


def _try(plan: Plan, trial: str, words: str, say: Callable[[str], None]) -> Trial:
    say(f"out of memory; trying {words}")
    with runs.make_scratch_folder() as folder:
        ran = runs.run_dry(plan, folder, trial)
        fits = bool(ran.notes) and all(note["marks"] and not note["error"] for note in ran.notes)
        peaks = [memory.compute_peak(note["memory"]) for note in ran.notes if note["memory"]] if fits else []
        peak = max(peaks, key=lambda peak: peak.allocated, default=None)
        if peak is None:
            return Trial(words, fits=False, peak=None)
        return Trial(words, fits=True, peak=peak.allocated, owners=peak.owners)


def _smaller(plan: Plan, say: Callable[[str], None]) -> list[Trial]:
    """Half the batch, and half again, where the script takes it as an option."""
    words = list(plan.launch.command)
    place = next((i for i, word in enumerate(words) if _BATCH.match(word.partition("=")[0])), None)
    if place is None:
        return []
    name, apart, value = words[place].partition("=")
    given = value if apart else words[place + 1] if place + 1 < len(words) else ""
    if not given.isdecimal():
        return []
    found = []
    size = int(given)
    for _ in range(MOST_HALVES):
        size //= 2
        if size < 1:
            break
        changed = list(words)
        if apart:
            changed[place] = f"{name}={size}"
        else:
            changed[place + 1] = str(size)
        launch = dataclasses.replace(plan.launch, command=tuple(changed))
        found.append(_try(dataclasses.replace(plan, launch=launch), "", f"{name} {size}", say))
        if found[-1].fits:
            break
    return found


def _sharded(found: list[Trial]) -> list[Trial]:
    """ZeRO cannot be tried on one rank: what it takes off follows from what a run that fits holds at its peak."""
    fitting = next((each for each in found if each.peak is not None), None)
    if fitting is None or fitting.peak is None:
        return []
    owners = fitting.owners
    rows = []
    shed = 0.0
    for stage, owner in enumerate(("optimizer state", "gradients", "weights"), 1):
        shed += owners.get(owner, 0) * (1 - 1 / SHARDS)
        if shed < LEAST_GAIN * fitting.peak:
            continue  # activations are what fills it
        rows.append(
            Trial(
                f"ZeRO stage {stage} over {SHARDS} ranks, computed from: {fitting.change}",
                fits=True,
                peak=int(fitting.peak - shed),
            )
        )
    return rows
