"""Recordings made by hand, as two runs would leave them."""

import itertools
from pathlib import Path

from torchport.findings import Result
from torchport.record import recording
from torchport.record.recording import End, Journal, Recording

SITE = "train.py:20"


def losses(values, site=SITE, device="npu", launches=10):
    """The events of a training loop: `launches` operators a step, an optimizer step after each loss."""
    count = itertools.count(launches or 0, launches or 0)
    for step, value in enumerate(values):
        yield {
            "kind": "loss",
            "site": site,
            "by": "backward",
            "value": value,
            "device": device,
            "launches": next(count) if launches is not None else None,
            "elapsed": 0.1 * step,
        }
        yield {
            "kind": "step",
            "step": step,
            "device": device,
            "gradient": device,
            "launches": None if launches is None else launches * (step + 1),
            "seconds": 0.1,
            "elapsed": 0.1 * step + 0.05,
        }


def calls(values, device="npu", launches=5):
    """The events of a script that only evaluates."""
    for step, value in enumerate(values, 1):
        yield {
            "kind": "call",
            "site": f"{SITE} Net",
            "value": value,
            "device": device,
            "launches": launches * step,
            "elapsed": 0.1 * step,
        }


def write(folder, *processes, output="", messages="", status=0, stopped="", seconds=3.0, command=()):
    """Store a recording with the events of each of `processes`; `status` None: nobody wrote its end."""
    folder = Path(folder)
    Result("record", data={"recording": recording.VERSION, "command": list(command)}).write(folder / recording.HEAD)
    for rank, events in enumerate(processes):
        journal = Journal(folder)
        place = folder / recording.PROCESSES / str(1000 + rank)
        place.mkdir(parents=True)
        several = len(processes) > 1
        journal.write_event(
            "process",
            pid=1000 + rank,
            name="MainProcess",
            rank=rank if several else None,
            world=len(processes) if several else None,
        )
        for event in events:
            journal.write_event(**event)
        journal.close()
        made = folder / recording.PROCESSES / str(journal._process)
        (made / recording.JOURNAL).rename(place / recording.JOURNAL)
        made.rmdir()
    (folder / recording.STDOUT).write_text(output)
    (folder / recording.STDERR).write_text(messages)
    if status is not None:
        End(status, seconds, stopped, 7.0 if stopped else 0.0).write_to(folder)
    return Recording.from_directory(folder)
