"""Whether a sabotage acts: what the sabotaged port recorded against what the healthy one did, on the same device.

Both runs are deterministic (one thread, the same random stream), so whatever differs was changed by the edit; this needs
no tolerance but one unit in the last place of a float32.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.port.left import compare_files
from torchport.port.runs import FILES
from torchport.record.recording import Process, Recording

LEAST = 1e-7  # relative
# Times differ from run to run.
_TIME = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ms|s)\b")


def change(healthy: Recording, port: Recording) -> str:
    """What the sabotage changed first, in words; "" for nothing.

    In this order: steps, losses (else outputs) of each rank and place and how far they move, settings of the optimizers,
    the start and the devices of parameters, evaluations, what was printed, and files.
    """
    if len(healthy.trained) != len(port.trained):
        return f"{len(port.trained)} processes train instead of {len(healthy.trained)}"
    for ours, theirs in zip(healthy.trained, port.trained, strict=True):
        for text in _changes(ours, theirs):
            return text
    if _TIME.sub("", healthy.output) != _TIME.sub("", port.output):
        return "what it prints"
    rows = compare_files(healthy.path / FILES, port.path / FILES)
    changed = [row.name for row in rows if row.equal is False or (row.difference or 0.0) > LEAST]
    return f"the file {changed[0]}" if changed else ""


def _changes(healthy: Process, port: Process) -> Iterator[str]:
    if healthy.step_kind != port.step_kind:
        yield f"a step is a {port.step_kind} instead of a {healthy.step_kind}"
    if len(healthy.steps) != len(port.steps):
        yield f"{len(port.steps)} steps instead of {len(healthy.steps)}"
    what = "loss" if healthy.of_kind("loss") else "output"
    # By order, not by name: the edit may have moved lines.
    curves = list(zip(healthy.collect_curves().values(), port.collect_curves().values(), strict=False))
    for ours, theirs in curves:
        if len(ours) != len(theirs):
            yield f"{len(theirs)} values of a {what} instead of {len(ours)}"
    sizes = [
        (step, size)
        for ours, theirs in curves
        for step, (one, other) in enumerate(zip(ours, theirs, strict=False))
        if (size := _difference(one, other)) > LEAST
    ]
    if sizes:
        yield f"the {what} changes from step {min(sizes)[0]} on, by {max(size for _, size in sizes):.0e} at most"
    for ours, theirs in zip(healthy.of_kind("settings"), port.of_kind("settings"), strict=False):
        if _plain(ours) != _plain(theirs):
            yield f"a setting of the optimizer changes at step {ours['step']}"
    starts = [{event["tensor"] for event in process.of_kind("start")} for process in (healthy, port)]
    yield from (f"{name} starts from other numbers" for name in sorted(starts[1] - starts[0])[:1])
    for ours, theirs in zip(healthy.of_kind("parameters"), port.of_kind("parameters"), strict=False):
        if ours["devices"] != theirs["devices"]:
            yield f"parameters of optimizer {ours['optimizer']} are on other devices"
    for ours, theirs in zip(healthy.of_kind("placed"), port.of_kind("placed"), strict=False):
        if ours["cpu"] != theirs["cpu"]:
            yield f"a part of the module called at {theirs['site']} is on the CPU"
    for ours, theirs in zip(healthy.of_kind("evaluation"), port.of_kind("evaluation"), strict=False):
        if (ours["training"], ours["norms"]) != (theirs["training"], theirs["norms"]):
            yield f"an evaluation changes after step {ours['step']}"


def _difference(one: float, other: float) -> float:
    """Relative; infinite where one of the two is not finite and the other another value."""
    if math.isfinite(one) and math.isfinite(other):
        return abs(one - other) / max(abs(one), abs(other)) if one != other else 0.0
    return 0.0 if repr(one) == repr(other) else math.inf


def _plain(event: Mapping[str, Any]) -> str:
    return json.dumps([event["optimizer"], event["step"], event["groups"]])
