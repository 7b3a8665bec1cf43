"""Invariants of training that a recorded run breaks: one run, compared with nothing.

The rules of one process have written events while it ran (`record.invariants`). Judged here is what the ranks have in
common: replicas stay equal, and ranks of data parallel training are given other data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from torchport.compare.conditions import replicas_equal
from torchport.diagnose.sickness import find_signs_in
from torchport.findings import Finding, Location, Result, Safety, Severity
from torchport.logs import Printed
from torchport.record.recording import Process, Recording
from torchport.results.invariants import Invariants

CODE = "TP368"
REPLICAS, DATA, RATES = "replicas are equal", "ranks see different data", "ranks have one learning rate"
NUMBERS, MOVE, LIVE = "losses are numbers", "weights move", "losses change and steps are taken"
VISITS = 3  # of a place that uploads, at which all ranks have the same
ROUNDING, OF_GRADIENTS = 1e-6, 1e-4  # relative: norms in seven digits, and what ranks compute each by itself
LEAST = 3  # losses in a row; steps in which all replicas are equal
STANDSTILL = 5  # steps in a row


def judge_invariants(recording: Recording) -> Result[Invariants]:
    """A finding for each invariant that is broken, once for all ranks, and how often each was there to be judged."""
    trained = recording.trained
    found: dict[tuple[str, str], Finding] = {}
    for event in recording.of_kind("invariant"):
        key = (event["name"], event["text"])
        found.setdefault(key, _make_finding(event["name"], event["text"], event["site"], event["step"]))
    findings = (
        *found.values(),
        *replicas_equal(recording),
        *_compare_replicas(trained),
        *_compare_data(trained),
        *_compare_rates(trained),
        *_find_lost_losses(trained),
        *_find_sickness(trained),
        *(_find_standstill(trained) if not any(name == MOVE for name, _ in found) else ()),
    )
    judged: dict[str, int] = {}
    for event in recording.of_kind("watched"):
        judged[event["name"]] = max(judged.get(event["name"], 0), event["judged"])
    watched = bool(judged)
    judged[REPLICAS] = min(len(one.of_kind("initial")) for one in trained) if len(trained) > 1 else 0
    judged[DATA] = len(_list_visits(trained))
    judged[RATES] = min(len(one.of_kind("settings")) for one in trained) if len(trained) > 1 else 0
    judged[NUMBERS] = judged[LIVE] = sum(len(one.of_kind("loss")) for one in trained)
    return Result("record invariants", findings, Invariants(recording.steps, len(trained), watched, judged))


def _make_finding(name: str, text: str, site: str, step: int) -> Finding:
    path, _, line = site.split(" ")[0].rpartition(":")
    location = Location(path, int(line), 1, int(line), 1) if path and line.isdecimal() else None
    return Finding(
        CODE, Severity.WARNING, Safety.REPORT, location, f"{name}: {text}", evidence={"invariant": name, "step": step}
    )


def _compare_replicas(processes: Sequence[Process]) -> Iterator[Finding]:
    """Parameters that begin with the same norm on all ranks, and do not keep it: some, while others do, or all after
    some steps."""
    if len(processes) < 2:
        return
    initial = [_read_initial(process) for process in processes]
    tables = [_read_norms(process) for process in processes]
    keys = set.intersection(*map(set, tables))
    begun_equal = {
        key for key in set.intersection(*map(set, initial)) if _are_equal([values[key] for values in initial])
    }
    parted: dict[str, tuple[int, int]] = {}
    kept = 0
    for optimizer, name in sorted({(number, name) for number, _, name in keys} & begun_equal):
        steps = sorted(step for number, step, other in keys if (number, other) == (optimizer, name))
        rows = [[table[optimizer, step, name] for table in tables] for step in steps]
        apart = next((place for place, row in enumerate(rows) if not _are_equal([norm for norm, _ in row])), None)
        # A gradient parts before the first seven digits of what it moves do.
        early = (place for place, row in enumerate(rows) if not _are_equal([one for _, one in row], OF_GRADIENTS))
        if apart is None:
            kept += 1
        elif "expert" not in name:  # experts of several ranks may have begun with one seed
            apart = min(apart, next(early, apart))
            parted[name] = steps[apart], apart
    if not parted:
        return
    name, (step, place) = min(parted.items(), key=lambda one: one[1])
    more = f" and {len(parted) - 1} more" if len(parted) > 1 else ""
    if kept:
        rest = f"{kept} other parameters stay" if kept > 1 else "another parameter stays"
        since, why = f"where {rest} equal", "or are clipped by other norms"
    elif place >= LEAST or _are_replicas(processes):
        since = f"after {place} steps in which all were" if place else "as all others"
        why = "as DistributedDataParallel does for what is called by it, not for the module in it"
    else:
        return  # each rank has a model of its own
    text = f"{name}{more} equal on all ranks at the beginning, and not from step {step} on, {since}: the gradients are "
    yield _make_finding(REPLICAS, f"{text}not reduced over the ranks that share them, {why}", "", step)


def _are_replicas(processes: Sequence[Process]) -> bool:
    """Whether each of them has made a DistributedDataParallel."""
    return all(process.of_kind("replicated") for process in processes)


def _find_standstill(processes: Sequence[Process]) -> Iterator[Finding]:
    """Steps in a row in which an optimizer changes nothing at all, with gradients and a learning rate."""
    for process in processes:
        row: dict[int, int] = {}
        rates: dict[int, float] = {}
        for event in process.events:
            if event["kind"] == "settings":
                rate = max((float(group.get("lr") or 0.0) for group in event["groups"]), default=0.0)
                if rate > rates.get(event["optimizer"], rate):  # it warms up: the first updates may be lost
                    row.pop(event["optimizer"], None)
                rates[event["optimizer"]] = rate
            elif event["kind"] == "norms" and rates.get(event["optimizer"], 1.0):
                number = event["optimizer"]
                changes = [float(value) for value in event["change"] if value is not None]
                gradients = [float(value) for value in event["gradient"] if value is not None]
                still = changes and not any(changes) and any(gradients) and all(map(math.isfinite, gradients))
                row[number] = row.get(number, 0) + 1 if still else 0
                if row[number] == STANDSTILL:
                    begun = event["step"] - STANDSTILL + 1
                    text = f"optimizer {number} changes no parameter from step {begun} on, with gradients and a rate"
                    yield _make_finding(MOVE, text, "", event["step"])
                    return


def _read_initial(process: Process) -> dict[tuple[int, str], float]:
    """The norms of parameters that the process has the whole of. Zeros are left out: biases begin with them, whether
    they are shared or parts."""
    told = {event["optimizer"]: event for event in reversed(process.of_kind("parameters"))}
    return {
        (event["optimizer"], name): float(value)
        for event in process.of_kind("initial")
        if (known := told.get(event["optimizer"])) is not None
        for name, whole, value, size in zip(
            known["names"], known["sizes"], event["norms"], event["sizes"], strict=False
        )
        if value and size == whole
    }


def _read_norms(process: Process) -> dict[tuple[int, int, str], tuple[float, float]]:
    """The norm of each parameter behind each step, and that of its gradient (0 without one)."""
    names: dict[int, list[str]] = {}
    found: dict[tuple[int, int, str], tuple[float, float]] = {}
    told = [*process.of_kind("parameters"), *process.of_kind("norms")]
    for event in sorted(told, key=lambda one: (one["step"], "norm" in one)):
        if "names" in event:
            names[event["optimizer"]] = event["names"]
            continue
        told_of = names.get(event["optimizer"], ())
        for name, norm, gradient in zip(told_of, event["norm"], event["gradient"], strict=False):
            if isinstance(norm, (int, float)):
                found[event["optimizer"], event["step"], name] = float(norm), float(gradient or 0.0)
    return found


def _are_equal(values: Sequence[float], bound: float = ROUNDING) -> bool:
    return max(values) - min(values) <= bound * max(map(abs, values))


def _compare_data(processes: Sequence[Process]) -> Iterator[Finding]:
    """Batches that all ranks have at each visit of a place, in data parallel training (it has replicas)."""
    visits = _list_visits(processes)
    changing = {site: rows for site, rows in visits.items() if len({row[0] for row in rows}) > 1}
    # One place may mean to give the same to all, if another gives each its own.
    if all(len(set(row)) == 1 for rows in changing.values() for row in rows):
        for site, rows in changing.items():
            if len(rows) >= VISITS:
                text = (
                    f"all {len(processes)} ranks have the same batch at each of {len(rows)} visits: no "
                    "DistributedSampler, or each rank shuffles by itself with the same seed"
                )
                yield _make_finding(DATA, text, site, 0)
                return


def _compare_rates(processes: Sequence[Process]) -> Iterator[Finding]:
    """The first step in which ranks that had the same learning rates have others."""
    tables = [
        {
            (event["optimizer"], event["step"]): [group.get("lr") for group in event["groups"]]
            for event in process.of_kind("settings")
        }
        for process in processes
    ]
    latest: list[dict[int, list[Any]]] = [{} for _ in tables]
    equal: set[int] = set()
    for step, number in sorted({(step, number) for table in tables for number, step in table}):
        for known, table in zip(latest, tables, strict=True):
            known[number] = table.get((number, step), known.get(number, []))
        rates = [known[number] for known in latest]
        if all(rate == rates[0] for rate in rates):
            equal.add(number)
        elif number in equal and len({len(rate) for rate in rates}) == 1:
            values = ", ".join(str(rate[0]) for rate in rates[:4])
            text = f"optimizer {number} steps with other learning rates on each rank from step {step} on ({values}): "
            yield _make_finding(
                RATES, f"{text}a schedule that follows the loss of one rank, or is stepped on some only", "", step
            )
            return


def _list_visits(processes: Sequence[Process]) -> dict[str, list[list[str]]]:
    """By place, for each visit the checksum of the batch that each rank has copied to its device there."""
    if len(processes) < 2 or not _are_replicas(processes):
        return {}
    tables = [
        {
            (event["site"], event["visit"]): event["checksum"]
            for event in process.of_kind("upload")
            if event["size"] > 1 and event["checksum"]  # none: it was on the device already
        }
        for process in processes
    ]
    found: dict[str, list[list[str]]] = {}
    for site, visit in sorted(set.intersection(*map(set, tables))):
        found.setdefault(site, []).append([table[site, visit] for table in tables])
    return found


def _find_lost_losses(processes: Sequence[Process]) -> Iterator[Finding]:
    for process in processes:
        row = 0
        scaled = bool(process.of_kind("scaler"))  # an infinite product with a scale that will shrink
        for number, event in enumerate(process.of_kind("loss")):
            value = float(event["value"])
            row = row + 1 if math.isnan(value) or (math.isinf(value) and not scaled) else 0
            if row == LEAST:
                text = f"the loss is {value} from step {number - LEAST + 1} on"
                yield _make_finding(NUMBERS, text, event["site"], number)
                return


def _find_sickness(processes: Sequence[Process]) -> Iterator[Finding]:
    """The signs that `torchport diagnose` finds in printed numbers, in the numbers themselves: by place of a loss."""
    for process in processes:
        series: dict[str, list[Printed]] = {}
        sites: dict[str, str] = {}  # names by place: several losses may be parts of one
        for number, event in enumerate(process.of_kind("loss")):
            name = sites.setdefault(event["site"], f"loss_{len(sites)}")
            series.setdefault(name, []).append(Printed(number, None, name, float(event["value"]), number, ROUNDING))
        for event in process.of_kind("scaler"):  # a scale that falls tells of steps that are skipped
            told = Printed(event["step"], None, "loss_scale", float(event["scale"]), event["step"])
            series.setdefault("loss_scale", []).append(told)
        for sign in find_signs_in(series):
            if sign.name != "not-finite":
                site = next((site for site, name in sites.items() if sign.facts.startswith(f"{name} ")), "")
                yield _make_finding(LIVE, sign.cause.rstrip("."), site, sign.line)
                return
