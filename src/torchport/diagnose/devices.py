"""Ranks that name one device as theirs, which CANN's own words on a device that is taken do not tell."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from torchport.diagnose.judging import Judgement
from torchport.diagnose.logs import Event
from torchport.knowledge.errors import load_error_rows

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
