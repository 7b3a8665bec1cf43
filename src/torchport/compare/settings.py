"""What is equal exactly or not at all: hyper-parameters, parameters, precision, the scale of the loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from torchport.compare.conditions import error_finding, has_failed
from torchport.findings import Finding
from torchport.record.recording import Process, Recording


def settings_equal(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Whether the optimizers have the same hyper-parameters in the same steps. They are exact in any precision."""
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        last = min(len(theirs.of_kind("step")), len(ours.of_kind("step")))
        tables = [
            {(event["optimizer"], event["step"]): event["groups"] for event in one.of_kind("settings")}
            for one in (theirs, ours)
        ]
        for key in sorted({*tables[0], *tables[1]}, key=lambda key: (key[1], key[0])):
            if key[1] >= last:
                break
            difference = _other_setting(*(_at(table, key) for table in tables))
            if difference:
                yield error_finding(
                    "TP350",
                    f"the optimizer's {difference} (optimizer {key[0]}, step {key[1]})",
                    "Look for a setting, a schedule or an option that is chosen by the device.",
                    step=key[1],
                )
                return


def _at(table: dict[tuple[int, int], list[Any]], key: tuple[int, int]) -> list[Any]:
    """What holds for that optimizer at that step: the newest that was recorded until then."""
    steps = [step for number, step in table if number == key[0] and step <= key[1]]
    return table[key[0], max(steps)] if steps else []


def _other_setting(theirs: list[Any], ours: list[Any]) -> str:
    if len(theirs) != len(ours):
        return f"number of parameter groups is {len(ours)}, the original's {len(theirs)}"
    for before, after in zip(theirs, ours, strict=True):
        for name in before.keys() & after.keys():
            if not _same(before[name], after[name]):
                return f"{name} is {_shown(after[name])}, the original's {_shown(before[name])}"
    return ""


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return (
            isinstance(one, (int, float)) and isinstance(other, (int, float)) and math.isclose(one, other, rel_tol=1e-6)
        )
    return bool(one == other)


def parameters_equal(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Whether the optimizers have as many parameters, of the same sizes, in the same steps. A port that has failed may
    have died inside a step: what it had not come to is no difference."""
    died = has_failed(port)
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        before, after = _sizes(theirs), _sizes(ours)
        last = min(len(theirs.steps), len(ours.steps))
        for key in sorted(before.keys() | after.keys(), key=lambda key: (key[1], key[0])):
            if key[0] < 0 or key[1] >= last or (died and key not in after):
                continue
            if before.get(key) != after.get(key):
                yield error_finding(
                    "TP355",
                    f"optimizer {key[0]} has {_counted(after.get(key))} from step {key[1]} on, the original's "
                    f"{_counted(before.get(key))}",
                    "Look for parameters that are frozen, left out or made twice on one side.",
                    step=key[1],
                )
                return


def places_equal(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Whether what the original has moved to a CUDA device is on an NPU in the port: the parameters of optimizers, then
    all of the modules that both call."""
    yield from itertools.islice(
        itertools.chain(_compare_parameter_places(reference, port), _compare_module_places(reference, port)), 1
    )


def _compare_parameter_places(reference: Recording, port: Recording) -> Iterator[Finding]:
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        before, after = (
            {event["optimizer"]: event for event in reversed(one.of_kind("parameters"))} for one in (theirs, ours)
        )
        for number in sorted(before.keys() & after.keys()):
            names = before[number]["names"]
            rows = zip(names, before[number].get("devices", ()), after[number].get("devices", ()), strict=False)
            left = [name for name, asked, given in rows if asked == "cuda" and given == "cpu"]
            if left:
                yield _left_on_host(left, f"{len(names)} parameters of optimizer {number}")
                return


def _compare_module_places(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Teachers, frozen parts and buffers, which no optimizer has."""
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        given = {event["site"]: set(event["cpu"]) for event in ours.of_kind("placed")}
        for event in theirs.of_kind("placed"):
            left = [name for name in event["cuda"] if name in given.get(event["site"], ())]
            if left:
                yield _left_on_host(left, f"module called at {event['site']}")
                return


def _left_on_host(names: list[str], of: str) -> Finding:
    also = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return error_finding(
        "TP345",
        f"{names[0]}{also} of the {of} are on the CPU in the port, and on CUDA in the original",
        "Look for modules that stay where they were made, and for a device that is chosen by name.",
    )


def _sizes(process: Process) -> dict[tuple[int, int], list[int]]:
    return {(event["optimizer"], event["step"]): list(event["sizes"]) for event in process.of_kind("parameters")}


def _counted(sizes: list[int] | None) -> str:
    return "other parameters" if sizes is None else f"{len(sizes)} parameters of {sum(sizes):,} numbers"


def precision_equal(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Whether both compute in the same dtypes, in the same regions. A port that has failed need not have come to all of
    them."""
    died = has_failed(port)
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        before, after = _dtypes(theirs), _dtypes(ours)
        if not after <= before if died else before != after:
            yield error_finding(
                "TP355",
                f"the port computes {_in(after)}, the original {_in(before)}",
                "Look for autocast, half() and dtypes that are chosen by the device.",
            )
            return
        regions, others = _regions(theirs), _regions(ours)
        for who, here, there in (("the port", others, regions), ("the original", regions, others)):
            if died and who == "the original":
                continue
            # The backward pass of an NPU has a thread of its own, in which no line of the user's is: a region that is
            # entered again there (activation checkpointing) has no place, and is the same as one of its kind with one.
            kinds, placeless = {region[1:] for region in there}, {region[1:] for region in there if not region[0]}
            for site, enabled, dtype in sorted(here - there):
                if (enabled, dtype) in (placeless if site else kinds):
                    continue
                yield error_finding(
                    "TP355",
                    f"only {who} has autocast {f'to {dtype}' if enabled else 'switched off'}"
                    f"{f' at {site}' if site else ''}",
                    "Look for a precision that is chosen by the device.",
                )
                return


def _dtypes(process: Process) -> set[str]:
    return {str(event["dtype"]) for event in process.of_kind("precision")}


def _regions(process: Process) -> set[tuple[str, bool, str]]:
    return {(event["site"], event["enabled"], event["dtype"]) for event in process.of_kind("autocast")}


def _in(dtypes: set[str]) -> str:
    return f"in {' and '.join(sorted(dtypes))}" if dtypes else "in the dtypes of its tensors alone"


def scales_equal(reference: Recording, port: Recording, control: Recording | None) -> Iterator[Finding]:
    """Whether GradScalers have the same scale and skip the same updates, as far as rounding leaves that alone in the
    control run."""
    controls = control.trained if control is not None else ()
    for rank, (theirs, ours) in enumerate(zip(reference.trained, port.trained, strict=False)):
        before, after = _updates(theirs), _updates(ours)
        ended = has_failed(reference) or has_failed(port)  # maybe within the first step of the scaler
        if bool(before) != bool(after) and theirs.steps and ours.steps and not ended:
            yield error_finding(
                "TP355",
                f"only {'the original' if before else 'the port'} scales the loss",
                "Look for a GradScaler that the device switches off.",
            )
            return
        moved = _updates(controls[rank]) if rank < len(controls) else before
        for number, (one, other) in enumerate(zip(before, after, strict=False)):
            if number < len(moved) and moved[number] != one:
                break
            if one != other:
                yield error_finding(
                    "TP355",
                    f"at update {number} of the GradScaler the port's scale is {other[0]:g}{_skipping(other[1])}, the "
                    f"original's {one[0]:g}{_skipping(one[1])}",
                    "Look at the settings of the GradScaler, and for gradients that overflow on one side.",
                    step=theirs.of_kind("scaler")[number]["step"],
                )
                return


def _updates(process: Process) -> list[tuple[float, bool]]:
    return [(float(event["scale"]), event["skipped"]) for event in process.of_kind("scaler")]


def _skipping(skipped: bool) -> str:
    return ", and the step is skipped" if skipped else ""
