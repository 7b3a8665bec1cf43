"""Reports of the processes of a run about the NPUs that they have used, and how they are merged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

from torchport.results.used_devices import Use, UsedDevice, computes_nothing


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A process that has begun, or has ended and names its `devices`. `rank` is its rank in a distributed job."""

    process: int
    rank: int | None
    devices: tuple[UsedDevice, ...] | None = None

    def to_line(self) -> bytes:
        """The report as a line of the file that they share."""
        return f"{json.dumps(dataclasses.asdict(self))}\n".encode()

    @classmethod
    def from_line(cls, line: bytes) -> Report:
        """The inverse of `to_line`."""
        row = json.loads(line)
        if row["devices"] is not None:
            row["devices"] = tuple(
                UsedDevice(**{**one, "steps": one["steps"] and tuple(one["steps"])}) for one in row["devices"]
            )
        return cls(**row)


def merge_reports(reports: Iterable[Report]) -> list[Use]:
    """The uses to print: one for each rank, with its children, and one for each other process that opened a device.

    Launchers and helper processes, which opened none, are left out; if there is no other process, one use without
    devices stands for all of them. Empty if nothing is known.
    """
    reports = list(reports)
    ended = {report.process for report in reports if report.devices is not None}
    ranks: dict[int, dict[str, UsedDevice] | None] = {}
    others: dict[int, dict[str, UsedDevice]] = {}
    silent = False  # a process without a rank has begun, and not ended by itself
    for report in reports:
        if report.devices is not None:
            known = others.get(report.process) if report.rank is None else ranks.get(report.rank)
            merged = _add(known or {}, report.devices)
            if report.rank is None:
                others[report.process] = merged
            else:
                ranks[report.rank] = merged
        elif report.process not in ended:
            silent = silent or report.rank is None
            if report.rank is not None:
                ranks.setdefault(report.rank, None)
    uses = [
        Use(None if devices is None else tuple(devices.values()), rank=rank) for rank, devices in sorted(ranks.items())
    ]
    uses += [Use(tuple(devices.values()), process=number) for number, devices in sorted(others.items()) if devices]
    if len(uses) == 1 and uses[0].rank is None:
        uses = [Use(uses[0].devices)]
    if not uses and others:
        uses = [Use(())]
    # That no NPU was used can be said only if each process has ended by itself.
    return [] if all(use.devices is None for use in uses) or (silent and computes_nothing(uses)) else uses


def _add(known: Mapping[str, UsedDevice], more: Iterable[UsedDevice]) -> dict[str, UsedDevice]:
    merged = dict(known)
    for one in more:
        other = merged.get(one.device, one)
        counted = None if one.operators is None or other is one else (other.operators or 0) + one.operators
        merged[one.device] = one if other is one else dataclasses.replace(other, operators=counted)
    return merged
