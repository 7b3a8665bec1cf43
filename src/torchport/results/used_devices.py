"""The line that `torchport run` ends with: which NPUs each rank has used. It is written and read here."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

USED = "torchport: NPUs used"
UNUSED = "torchport: no NPU was used: everything ran on the CPU"
IDLE = "opened, nothing computed"
NONE, UNKNOWN = "none", "unknown"
_LINE = re.compile(rf"({re.escape(USED)}: |{re.escape(UNUSED)}(?:; |$))(.*)")
_PROCESS = re.compile(r"(?:(rank|process) (\d+): )?(.+)")
_DEVICE = re.compile(
    r"(npu:(\d+))(?: \(card ([^()]+)\))?"
    rf"(?:, ([\d,]+) operators?(?: in ([\d,]+) of ([\d,]+) steps?)?|( {IDLE}))?"
)


def name_card(device: str, number: str) -> str:
    """The device, with the card's number if that is another: "npu:1", "npu:0 (card 3)"."""
    return device if device == f"npu:{number}" else f"{device} (card {number})"


@dataclasses.dataclass(frozen=True, slots=True)
class UsedDevice:
    """An NPU that a process has opened: its `device` there ("npu:0") and the card's `number` on the machine.

    `operators` counts those that it has run there, None if nothing counts them. `steps` says in how many of the
    process's optimizer steps that was, and of how many, None if nothing observes the steps.
    """

    device: str
    number: str
    operators: int | None = None
    steps: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """One process and the `devices` that it has opened, the most used first; None if it ended without a report.

    `rank` is that of a distributed job. `process` is the number of a process without a rank, given only if there are
    others.
    """

    devices: tuple[UsedDevice, ...] | None
    rank: int | None = None
    process: int | None = None


def computes_nothing(uses: Sequence[Use]) -> bool:
    """Whether no operator ran on an NPU in any of the processes, and all of them have said so."""
    return all(use.devices is not None and all(one.operators == 0 for one in use.devices) for use in uses)


def format_used_devices(uses: Sequence[Use]) -> str:
    """The line for `uses`, without an end of line."""
    words = "; ".join(_format_use(use) for use in uses)
    if not computes_nothing(uses):
        return f"{USED}: {words}"
    return UNUSED if words in ("", NONE) else f"{UNUSED}; {words}"


def parse_used_devices(line: str) -> tuple[Use, ...] | None:
    """The inverse of `format_used_devices`; None for another line. A launcher may have put words in front of it.

    A line without a process is that of one without a rank that has opened nothing.
    """
    found = _LINE.search(line.rstrip())
    if found is None:
        return None
    uses = [_parse_use(text) for text in (found[2] or NONE).split("; ")]
    return None if None in uses else tuple(use for use in uses if use is not None)


def _format_use(use: Use) -> str:
    who = f"rank {use.rank}: " if use.rank is not None else f"process {use.process}: " if use.process else ""
    if use.devices is None:
        return who + UNKNOWN
    return who + (" and ".join(map(_format_device, use.devices)) or NONE)


def _format_device(one: UsedDevice) -> str:
    name = name_card(one.device, one.number)
    if one.operators is None:
        return name
    if one.operators == 0:
        return f"{name} {IDLE}"
    words = f"{name}, {_count(one.operators, 'operator')}"
    return f"{words} in {one.steps[0]:,} of {_count(one.steps[1], 'step')}" if one.steps else words


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _parse_use(text: str) -> Use | None:
    found = _PROCESS.fullmatch(text)
    if found is None:
        return None
    kind, number, rest = found.groups()
    devices: tuple[UsedDevice, ...] | None = None
    if rest != UNKNOWN:
        parsed = [] if rest == NONE else [_DEVICE.fullmatch(word) for word in rest.split(" and ")]
        if None in parsed:
            return None
        devices = tuple(_read_device(one) for one in parsed if one is not None)
    return Use(devices, int(number) if kind == "rank" else None, int(number) if kind == "process" else None)


def _read_device(found: re.Match[str]) -> UsedDevice:
    device, index, number, operators, used, of, idle = found.groups()
    count = 0 if idle else None if operators is None else _number(operators)
    return UsedDevice(device, number or index, count, None if used is None else (_number(used), _number(of)))


def _number(text: str) -> int:
    return int(text.replace(",", ""))
