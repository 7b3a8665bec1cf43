"""What a recording has, and the operators of a step, as plain data and as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchport.record.operators import layout
from torchport.record.operators.checking import check_files, require_readable
from torchport.record.operators.part import format_bytes
from torchport.record.operators.reading import Call, Operators, Tensor

# What recorders are called where people read it.
RECORDERS = {"hook": "noted by the library", "mode": "noted in Python", "cann": "from CANN's dumps"}


def open_recording(path: Path) -> Operators:
    """The recording in `path`; of a run that was killed, or goes on, what it has left beside it."""
    aside = path.with_name(path.name + layout.UNFINISHED)
    return Operators.read(aside if not path.exists() and aside.is_dir() else path)


def build_overview(path: Path) -> dict[str, Any]:
    """Processes, steps, sizes; what is missing, and what is wrong with which file. Raises TorchportError for a folder
    that is no recording."""
    recorded = open_recording(path)
    files = [file for process in recorded.processes for file in (*process.files.values(), process.rest) if file]
    damaged = check_files(files)
    found = []
    for process in recorded.processes:
        events = {int(event["step"]): event for event in _events(recorded, process.pid)}
        whole = [number for number in process.steps if process.files[number] not in damaged]
        steps = [events[number] for number in whole]
        about: dict[str, Any] = {}
        if whole:
            with process.step(whole[0]) as step:
                about = _about(step.about)
        found.append(
            {
                "pid": process.pid,
                "rank": process.rank,
                **about,
                "steps": whole,
                "calls": sum(int(event["calls"]) for event in steps),
                "bytes": sum(int(event["bytes"]) for event in steps),
                "lost": sum(int(event["lost"]) for event in steps),
                "rest": int(events[-1]["calls"]) if -1 in events and process.rest else 0,
                "missing": [str(file) for file in process.missing],
                "cut": [str(file) for file in process.cut],
                "notes": list(process.notes),
            }
        )
    end = recorded.recording.end
    known = {process.pid for process in recorded.processes}
    others = [one for one in recorded.recording.processes if one.pid not in known]
    return {
        "recording": str(recorded.path),
        "version": recorded.recording.head.get("recording"),
        "finished": end is not None,
        "status": recorded.recording.status,
        "steps": recorded.recording.steps,
        "processes": found,
        "notes": [str(event["text"]) for other in others for event in other.of_kind("note")],
        "damaged": sorted(damaged.values()),
    }


def _events(recorded: Operators, pid: int) -> list[Any]:
    return [
        event
        for process in recorded.recording.processes
        if process.pid == pid
        for event in process.of_kind("operators")
    ]


def overview_lines(shown: dict[str, Any]) -> list[str]:
    """The same for people."""
    end = f"ended with {shown['status']}" if shown["finished"] else "has not ended, or was killed"
    lines = [f"{shown['recording']}: version {shown['version']}, {shown['steps']} steps of training; the run {end}"]
    if not shown["processes"]:
        lines.append("no operators were recorded")
    for one in shown["processes"]:
        name = f"process {one['pid']}" if one["rank"] is None else f"rank {one['rank']}"
        steps = one["steps"]
        which = f"steps {_ranges(steps)}" if steps else "no whole step"
        lines.append(f"{name}: operators of {which}: {_calls(one['calls'])}, {format_bytes(one['bytes'])}")
        if "level" in one:
            lines.append(f"  {_how(one)}")
        if one["rest"]:
            lines.append(f"  after the last step {_calls(one['rest'])}")
        if gaps := [number for number in range(steps[0], steps[-1]) if number not in steps] if steps else []:
            lines.append(f"  not recorded, or not whole: steps {_ranges(gaps)}")
        if one["lost"]:
            lines.append(f"  {one['lost']:,} calls could not be noted")
        lines += [f"  missing: {file}" for file in one["missing"]]
        lines += [f"  cut within a step, which is lost: {file}" for file in one["cut"]]
        lines += [f"  note: {text}" for text in one["notes"]]
    lines += [f"note: {text}" for text in shown["notes"]]
    return lines + [f"damaged: {text}" for text in shown["damaged"]]


def _about(about: Mapping[str, Any]) -> dict[str, Any]:
    """How a process was recorded: of what a file says the fields that are as we write them."""
    found = {name: about[name] for name in ("level", "recorder", "without") if isinstance(about.get(name), str)}
    filters = about.get("filters")
    if isinstance(filters, dict) and all(
        isinstance(one, list) and all(isinstance(pattern, str) for pattern in one) for one in filters.values()
    ):
        found["filters"] = filters
    return found


def _how(one: dict[str, Any]) -> str:
    words = [f"level {one['level']}", RECORDERS.get(one.get("recorder", ""), "")]
    if one.get("without"):
        words[1] += f", as the library could not be used: {one['without']}"
    filters = one.get("filters") or {}
    words += [f"only {kind}={' or '.join(patterns)}" for kind, patterns in filters.items()]
    return ", ".join(word for word in words if word)


def _calls(number: int) -> str:
    return f"{number:,} call{'' if number == 1 else 's'}"


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in parts)


def read_calls(path: Path, step: int, rank: int) -> Iterator[dict[str, Any]]:
    """The calls of a step as plain data."""
    process = open_recording(path).rank(rank)
    if step in process.files:
        require_readable(process.files[step])
    with process.step(step) as opened_step:
        for call in opened_step.calls():
            yield plain_call(call)


def plain_call(call: Call) -> dict[str, Any]:
    """A call for JSON; NaN is null there."""
    return {
        "index": call.index,
        "name": call.name,
        "overload": call.overload,
        "phase": call.phase,
        "module": call.module,
        "function": call.function,
        "source": call.source,
        "sequence": call.sequence,
        "node": call.node,
        "thread": call.thread,
        "arguments": call.arguments,
        "results": call.results,
        "inputs": [plain_tensor(one) for one in call.inputs],
        "outputs": [plain_tensor(output) for output in call.outputs],
        "written": [plain_tensor(one) for one in call.written],
    }


def plain_tensor(tensor: Tensor | None) -> dict[str, Any] | None:
    """A tensor for JSON."""
    if tensor is None:
        return None
    found = tensor.statistics
    numbers: dict[str, Any] = {}
    if found is not None:
        for name in ("minimum", "maximum", "mean", "l2"):
            value = getattr(found, name)
            numbers[name] = value if abs(value) <= 1.8e308 else None if value != value else str(value)
        numbers |= {"nans": found.nans, "infinities": found.infinities, "zeros": found.zeros}
        numbers["checksum"] = f"{found.checksum:016x}"
    return {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride),
        "dtype": tensor.dtype,
        "device": tensor.device,
        "format": tensor.format,
        "name": tensor.name,
        "storage": tensor.storage,
        "version": tensor.version,
        "offset": tensor.offset,
        "requires_grad": tensor.requires_grad,
        "has_content": tensor.has_content,
        "reason": tensor.reason,
        **numbers,
    }


def call_lines(call: dict[str, Any], *, numbers: bool) -> Iterator[str]:
    """A call and its tensors; with `numbers` also what differs from run to run of the same script."""
    name = call["name"] + (f".{call['overload']}" if call["overload"] else "")
    where = " ".join(word for word in (call["module"], call["source"]) if word)
    line = f"{call['phase']} {name} ({where})"
    if numbers:
        line = f"{call['index']} {line}" + (f" #{call['sequence']}" if call["sequence"] >= 0 else "")
    yield line + (f" {call['node']}" if call["node"] else "")
    if any(not _is_tensors(one) for one in call["arguments"]):
        yield f"    arguments: {', '.join(map(_word, call['arguments']))}"
    for kind, word in (("inputs", "input"), ("outputs", "output"), ("written", "written")):
        for place, tensor in enumerate(call[kind]):
            if tensor is None:
                continue
            text = f"{tensor['dtype']}{tensor['shape']}"
            if tensor["name"]:
                text += f" {tensor['name']}"
            if "mean" in tensor:
                values = [_short(tensor[word]) for word in ("minimum", "maximum", "mean", "l2")]
                text += " min {} max {} mean {} l2 {}".format(*values)
                text += "".join(f" {word} {tensor[word]}" for word in ("nans", "infinities") if tensor[word])
            if tensor["reason"]:
                text += f" ({tensor['reason']})"
            yield f"    {word} {place}: {text}"


def _is_tensors(value: Any) -> bool:
    """Whether a value says nothing that the tensors' lines do not say."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_tensors, value))
    return value is None or (isinstance(value, dict) and "t" in value)


def _word(value: Any) -> str:
    """An argument in a line: t0 is the call's input 0."""
    if isinstance(value, list):
        if len(value) > 2 and all(isinstance(one, dict) and "t" in one for one in value):
            return f"[{_word(value[0])} to {_word(value[-1])}]"
        return f"[{', '.join(map(_word, value))}]"
    if isinstance(value, dict):
        ((kind, of),) = value.items() if len(value) == 1 else (("", ""),)
        return f"t{of}" if kind == "t" else str(of)
    return "-" if value is None else json.dumps(value)


def _short(value: float | str | None) -> str:
    return "nan" if value is None else value if isinstance(value, str) else f"{value:.6g}"
