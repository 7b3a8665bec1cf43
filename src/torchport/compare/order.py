"""Parameters of an optimizer in the same order in both runs.

A program that collects them in a set (`set(model.parameters())`) has them in the order of their addresses, which is
another in each run of it, of the original too. No optimizer of torch computes anything else for that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torchport.record.recording import Process, Recording

# By kind of event the lists with an item for each parameter.
LISTS = {
    "parameters": ("names", "sizes", "devices"),
    "initial": ("norms", "sizes"),
    "norms": ("gradient", "norm", "change"),
}


def order_parameters(reference: Recording, other: Recording) -> Recording:
    """`other` with the parameters of each optimizer in the order of `reference`, if they have the same names."""
    changed: dict[int, Process] = {}
    for theirs, ours in zip(reference.trained, other.trained, strict=False):
        found = _read_names(ours)
        orders = {
            number: [names.index(name) for name in wanted]
            for number, wanted in _read_names(theirs).items()
            if (names := found.get(number, wanted)) != wanted
            and len(set(names)) == len(names) == len(wanted)
            and set(names) == set(wanted)
        }
        if orders:
            changed[id(ours)] = Process(ours.pid, tuple(_reorder(event, orders) for event in ours.events))
    if not changed:
        return other
    return dataclasses.replace(other, processes=tuple(changed.get(id(one), one) for one in other.processes))


def _read_names(process: Process) -> dict[int, list[str]]:
    """By optimizer the names of its parameters; nothing for one with others in a later step."""
    found: dict[int, list[str]] = {}
    several: set[int] = set()
    for event in process.of_kind("parameters"):
        names = list(map(str, event["names"]))
        if found.setdefault(event["optimizer"], names) != names:
            several.add(event["optimizer"])
    return {number: names for number, names in found.items() if number not in several}


def _reorder(event: Mapping[str, Any], orders: Mapping[int, Sequence[int]]) -> Mapping[str, Any]:
    order = orders.get(event.get("optimizer", -1)) if event["kind"] in LISTS else None
    if order is None:
        return event
    moved = {
        name: [event[name][place] for place in order]
        for name in LISTS[event["kind"]]
        if len(event.get(name, ())) == len(order)  # later steps have one number for the whole optimizer
    }
    return {**event, **moved}
