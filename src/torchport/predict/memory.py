"""Who holds the device's memory: the allocator's history, replayed with the notes of `owners`."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from typing import Any

from torchport.results.prediction import Peak

# What torch_npu's allocator makes of a size: 32 bytes that kernels may read beyond the end, whole blocks of 512.
PADDING, BLOCK = 32, 512
CURVE = 200  # points
OPTIMIZER = "optimizer temporaries"


def round_allocation(size: int) -> int:
    """Bytes that a tensor of that size takes."""
    return -(-(size + PADDING) // BLOCK) * BLOCK


def compute_peak(notes: dict[str, Any], step: int = -1) -> Peak:
    """Replay the notes of one process (`owners.Owners.collect_notes`).

    The curve is the one of `step`, counted from 0; -1 is the one that did not end.
    """
    owner_of = _owners(notes)
    live: dict[int, tuple[int, int]] = {}
    now = most = number = 0
    at_most: list[tuple[int, int]] = []
    levels = []
    rising = False
    for action, address, size in [*notes["history"], ("end", 0, 0)]:
        if action == "alloc":
            live[address] = number, size
            number += 1
            now += round_allocation(size)
            rising = rising or now > most
            most = max(most, now)
            levels.append(now)
        elif action in ("free_requested", "end"):
            if rising:  # right after the highest point
                at_most = list(live.values())
                rising = False
            if address in live:
                now -= round_allocation(live.pop(address)[1])
    owners: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    asked = 0
    for index, size in at_most:
        owner, module = owner_of(index)
        owners[owner] += size
        asked += size
        if module:
            modules[module] += size
    return Peak(
        allocated=notes["peak"],
        reserved=notes["reserved"],
        total=notes["total"],
        owners=dict(owners.most_common()),
        modules=dict(modules.most_common(20)),
        rounding=notes["peak"] - asked,
        fragmentation=notes["reserved"] - notes["peak"],
        curve=tuple(_thinned(levels[slice(*_find_bounds(notes, step))])),
    )


def _owners(notes: dict[str, Any]) -> Any:
    """Owner and module of the allocation of a number: what was labelled, else what was computing then."""
    labels: dict[int, list[tuple[int, str]]] = {}
    for count, address, owner in notes["labels"]:
        labels.setdefault(count, []).append((address, owner))
    labelled: dict[int, str] = {}
    live: dict[int, int] = {}
    number = 0
    for action, address, _ in notes["history"]:
        if action == "alloc":
            live[address] = number
            number += 1
            # What was labelled before the next allocation is alive now, even where it was freed before that.
            for where, owner in labels.get(number, ()):
                if where in live:
                    labelled.setdefault(live[where], owner)
        elif action == "free_requested":
            live.pop(address, None)
    starts = [scope[0] for scope in notes["scopes"]]
    first_step = starts[0] if starts else number

    def of(index: int) -> tuple[str, str]:
        if index in labelled:
            return labelled[index], ""
        place = bisect.bisect_right(starts, index) - 1
        scope = notes["scopes"][place][1] if place >= 0 else ""
        if scope == "optimizer":
            return OPTIMIZER, ""
        if scope:
            return "activations", scope
        return ("backward and loss" if index >= first_step else "before the first step"), ""

    return of


def _find_bounds(notes: dict[str, Any], step: int) -> tuple[int, int | None]:
    """The numbers of the allocations with which a step began and ended; if it did not end, all behind the last one."""
    ends = [0, *notes["ends"]]
    return (ends[step], ends[step + 1]) if 0 <= step < len(ends) - 1 else (ends[-1], None)


def _thinned(levels: list[int]) -> list[int]:
    """The highest of each of CURVE pieces."""
    if len(levels) <= CURVE:
        return levels
    edges = [i * len(levels) // CURVE for i in range(CURVE + 1)]
    return [max(levels[a:b]) for a, b in itertools.pairwise(edges)]
