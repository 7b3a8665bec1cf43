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
# The kinds of quantities that a comparison looks at: what one value is called, and what leads to the name of its place.
QUANTITIES = {
    "loss": ("loss", "at"),
    "gradient": ("gradient", "of"),
    "change": ("update", "of"),
    "inputs": ("input", "at"),
    "upload": ("upload", "at"),
    "loss scale": ("loss scale", "of"),
    "setting": ("setting", ""),
    "precision": ("precision", "of"),
}
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
    """A difference: 0, 2.0e-06, "not finite"."""
    number = float(value)
    return "0" if number == 0 else f"{number:.1e}" if math.isfinite(number) else "not finite"


def bound(value: float) -> str:
    """A difference that is allowed: 3.4e-06, 0.01, "not judged"."""
    number = float(value)
    return f"{number:.2g}" if math.isfinite(number) else "not judged"


def size(number: float) -> str:
    """Bytes as people say them: 512 B, 1.2 MB."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = next((power for power in range(len(units)) if number < 999.5 * 1000**power), len(units) - 1)
    return f"{number / 1000**power:.3g} {units[power]}"


def kind_of(row: Mapping[str, Any]) -> str:
    """What one value of a row is called: "gradient", "update", "loss scale"."""
    kind = str(row.get("kind") or "value")
    return QUANTITIES.get(kind, (kind, ""))[0]


def quantity(row: Mapping[str, Any]) -> str:
    """Which quantity a row is about: "gradient of fc1.weight", "loss at train.py:20", "setting lr"."""
    what, name = kind_of(row), str(row.get("name") or "")
    link = QUANTITIES.get(str(row.get("kind")), ("", "of"))[1]
    if not name or name == what or name.startswith(f"{what} "):
        return name or what
    return " ".join(filter(None, (what, link, name)))


def values(row: Mapping[str, Any]) -> str:
    """How many values of a quantity were compared: "200 gradients"."""
    return count(int(row.get("compared") or 0), kind_of(row))


def value(one: object) -> str:
    """A value that was recorded; "nothing" for one that was not."""
    if one is None:
        return "nothing"
    return f"{float(one):.6g}" if isinstance(one, int | float) else str(one)


def is_off(row: Mapping[str, Any]) -> bool:
    """Whether the worst difference of a quantity is more than is allowed. One without a bound has to be equal."""
    worst, allowed = row.get("worst"), row.get("allowed")
    if worst is None:
        return bool(row.get("at"))
    return not float(worst) <= float(allowed or 0.0)


def outcome(row: Mapping[str, Any]) -> str:
    """ "noticed", "NOT noticed", or "not possible" for a fault that this script has no place for."""
    if not row.get("possible", True):
        return "not possible"
    return "noticed" if row.get("noticed") else "NOT noticed"


def faults(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of the faults that were possible were noticed: "3 of 3 small faults noticed"; empty for none."""
    outcomes = [found for row in rows if (found := outcome(row)) != "not possible"]
    return f"{outcomes.count('noticed')} of {len(outcomes)} small faults noticed" if outcomes else ""


def apart(row: Mapping[str, Any]) -> str:
    """A difference beside what explains it: "1.0e-02 (noise 1.5e-07, 3e-06 allowed)"; empty for what has no size, and
    is equal or not."""
    if row.get("error") is None:
        return ""
    known = [
        f"noise {error(row['noise'])}" if row.get("noise") is not None else "",
        f"{bound(row['allowed'])} allowed" if row.get("allowed") is not None else "",
    ]
    beside = ", ".join(filter(None, known))
    return f"{error(row['error'])} ({beside})" if beside else error(row["error"])


def unmeasured(controls: Mapping[str, Any]) -> str:
    """That nobody knows what the comparison would notice, and why; empty where it is known."""
    if controls.get("measured"):
        return ""
    why = str(controls.get("why") or "")
    return f"power not measured: {why}" if why else "power not measured"


def yardstick(comparison: Mapping[str, Any]) -> list[str]:
    """What the bounds of a comparison rest on, in clauses; none where the original did not run with noise."""
    measured = comparison.get("yardstick") or {}
    clauses = []
    if measured:
        spread = measured.get("spread") or {}
        near = [
            f"{what} within {error(spread[kind])}"
            for kind, what in (("loss", "loss"), ("gradient", "gradients"), ("change", "updates"))
            if spread.get(kind) is not None
        ]
        steps = count(int(measured.get("steps") or 0), "step")
        noise = str(measured.get("noise") or "noise in the last digit")
        clauses.append(f"{steps} of the original with {noise}" + (f": {', '.join(near)}" if near else ""))
    if measured.get("chaotic") is not None:
        clauses.append(
            f"from step {int(measured['chaotic'])} on rounding alone decides what the original computes"
        )
    if forced := comparison.get("forced"):
        clauses.append(
            f"{count(int(forced.get('steps') or 0), 'step')} compared one by one, each from the original's own state "
            f"({size(float(forced.get('bytes') or 0))})"
        )
    return clauses


def drawn(row: Mapping[str, Any]) -> str:
    """What a random operator of the device gave: "normal_ at train.py:12: mean 0.1, where 0 is expected"."""
    return (
        f"{row.get('operator')} at {row.get('site')}: mean {value(row.get('mean'))}, where "
        f"{value(row.get('expected_mean'))} is expected"
    )


def place(row: Mapping[str, Any]) -> str:
    """Where a fault was put: "step 19, fc1.weight"."""
    step = "" if row.get("step") is None else f"step {row['step']}"
    return ", ".join(filter(None, (step, str(row.get("where") or ""))))


def declared(row: Mapping[str, Any]) -> str:
    """A rounding that the device declares: "HF32 convolution rounds to 4.9e-04"."""
    return f"{row.get('name')} rounds to {error(row['roundoff'])}"


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
