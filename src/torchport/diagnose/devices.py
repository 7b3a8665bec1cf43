"""Ranks on one device, and runs on none: by the devices that errors name, and by the last line of `torchport run`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from torchport.diagnose.judging import Judgement
from torchport.diagnose.logs import Event
from torchport.knowledge.errors import load_error_rows
from torchport.results.used_devices import parse_used_devices

_TAKEN, _SHARED = "collective.hccp-busy", "collective.shared-device"
# torch_npu's head of an error: whose it is.
_HEAD = re.compile(r"PID:\d+, Device:(\d+), RankID:(\d+)\)")
_MACHINE = re.compile(r"\bip=([\w.:]+)")  # ray's, of a worker on another machine


def explain_taken_device(judgement: Judgement, events: Sequence[Event]) -> tuple[Judgement, Sequence[Event]]:
    """The judgement and its events; where a device is said to be taken and all ranks that name theirs name the same,
    it is that they share it, by the lines in which they name it.

    Several devices in the log, and several machines, leave it as it is.
    """
    if judgement.first.row.name != _TAKEN:
        return judgement, events
    named: dict[int, Event] = {}
    devices = set()
    for event in events:
        if found := _HEAD.search(event.text):
            machine = _MACHINE.search(event.text)
            devices.add((machine.group(1) if machine else "", found.group(1)))
            named.setdefault(int(found.group(2)), event)
    if len(devices) != 1 or len(named) < 2:
        return judgement, events
    ranks = sorted(named)
    told = [dataclasses.replace(named[rank], row=load_error_rows()[_SHARED]) for rank in ranks]
    why = f"all of them name Device:{devices.pop()[1]}, which is right only on machines of their own"
    return Judgement(told[0], (judgement.first, *judgement.others), "medium", why), (*events, *told)


def find_odd_uses(lines: Sequence[str]) -> Iterator[str]:
    """In a sentence each, where ranks have computed, or hold memory, on one card, or nothing ran on an NPU.

    By the lines with which `torchport run` ends; each rank may have printed its own.
    """
    uses = [use for line in lines for use in parse_used_devices(line) or ()]
    known = [use for use in uses if use.devices is not None]
    if not known:
        return
    if len(known) == len(uses) and not any(one.operators != 0 for use in known for one in use.devices or ()):
        yield "no operator ran on an NPU: everything ran on the CPU"
        return
    ranks: dict[str, list[int]] = {}
    idle: dict[str, list[int]] = {}
    for use in known:
        for one in use.devices or ():
            if use.rank is not None:
                (ranks if one.operators else idle).setdefault(one.number, []).append(use.rank)
    for number, found in ranks.items():
        if len(found) > 1:
            yield f"ranks {_list(found)} computed on one card ({number}): nothing gave each rank a card of its own"
        if number in idle:
            yield f"rank {_list(idle[number])} opened card {number} of rank {found[0]}, and computed nothing there"


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
