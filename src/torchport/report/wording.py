"""Numbers and states in words, the same in the terminal and in HTML."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from typing import Any

# The verdict's words, and the kind that gives each its colour and its mark.
KINDS = {"holds": "good", "does not hold": "bad", "undecided": "open"}
DEVICES = {"npu": "the NPU", "cpu": "the CPU"}
PARTS = ("loss", "gradients", "parameters", "outputs")
ELAPSED = (("h", 3600), ("min", 60))


def kind(verdict: object) -> str:
    """ "good", "bad" or "open"; a word that is not known is open, never good and never bad."""
    return KINDS.get(str(verdict), "open")


def printable(text: str) -> str:
    """The text without anything that a terminal would obey: control characters become visible escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def count(number: int, noun: str) -> str:
    """ "1 step", "2 steps", "1,234 steps"."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """ "steps", "entries", "passes"."""
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def step_kind(comparison: Mapping[str, Any]) -> str:
    """What a step of a comparison is: "optimizer step", "backward pass", "module call"."""
    name = str((comparison.get("steps") or {}).get("kind") or "step")
    return {"backward": "backward pass", "call": "module call"}.get(name, name)


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def sentence(text: str) -> str:
    """The text with a capital at its start and a full stop at its end; a name keeps its own writing."""
    if not text:
        return ""
    first = text.split()[0] if text.split() else ""
    start = text if any(mark in first for mark in "./_(") else f"{text[:1].upper()}{text[1:]}"
    return start if start.rstrip()[-1:] in tuple(".!?。") else f"{start}."


def elapsed(seconds: float) -> str:
    """A time as people say it: 506 ms, 7.8 s, 2 min 5 s, 1 h 4 min."""
    value = float(seconds)
    if not math.isfinite(value) or value < 0:
        return "?"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    for (large, size), small, part in zip(ELAPSED, ("min", "s"), (60, 1), strict=True):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large} {rest} {small}" if rest else f"{whole // size} {large}"
    return f"{whole} s"


def error(value: float) -> str:
    """A relative difference: 0, 2.0e-06, "not finite"."""
    number = float(value)
    return "0" if number == 0 else f"{number:.1e}" if math.isfinite(number) else "not finite"


def ended(run: Mapping[str, Any]) -> str:
    """How a run came to its end."""
    status, how = run.get("status"), run.get("ended") or ""
    steps = count(int(run.get("steps") or 0), "step")
    if run.get("skipped"):
        return "not run"
    if run.get("timed_out") or how == "timeout":
        return f"stopped after {steps}: --timeout"
    if how == "memory":
        return f"stopped after {steps}: this machine's memory was used up"
    if how == "steps":
        return f"ended after {steps}, as --steps asks"
    if how == "enough":
        return f"ended by torchport after {steps}: enough to compare"
    if status is None:
        return "stopped from outside"
    if status < 0:
        return f"signal {_signal(-status)}"
    return f"exit status {status}" if status else "ran to its end"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)


def launched(run: Mapping[str, Any]) -> str:
    """How many operators a run launched on the NPU, and in how many of its steps; empty where nobody counted."""
    evidence = run.get("evidence") or {}
    launches, steps_with, steps = evidence.get("launches"), evidence.get("steps_with"), run.get("steps")
    words = []
    if launches is not None:
        words.append(f"{count(int(launches), 'operator') if launches else 'no operator'} launched on the NPU")
    if steps_with is not None and steps and launches != 0:
        words.append(f"in {int(steps_with):,} of {count(int(steps), 'step')}")
    return ", ".join(words)


def device(run: Mapping[str, Any]) -> str:
    """The device that a run was given; one that it did not use is called so; empty for a run that was left out."""
    name = "" if run.get("skipped") else str(run.get("device") or "")
    unused = (run.get("evidence") or {}).get("launches") == 0
    return f"{name}, not used" if name and unused else name


def places(run: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Where the loss, the gradients, the parameters and the outputs of a run lived: each device with those on it."""
    evidence = run.get("evidence") or {}
    found: dict[str, list[str]] = {}
    for part in PARTS:
        if evidence.get(part):
            found.setdefault(str(evidence[part]), []).append(part)
    return [(DEVICES.get(device, device), parts) for device, parts in found.items()]


def differs(row: Mapping[str, Any]) -> str:
    """What is to be said of a file that the runs left: equal, differs, not compared."""
    equal = row.get("equal")
    return "not compared" if equal is None else "equal" if equal else "differs"
