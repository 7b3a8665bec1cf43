"""Numbers and states in words, the same in the terminal and in HTML."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Sequence

from torchport.results.comparison import (
    Comparison,
    ControlRow,
    Controls,
    Difference,
    Draw,
    Evidence,
    Noticed,
    Quantity,
    Roundoff,
)
from torchport.results.port import FileRow, Port, Run

# The verdict's words, and the kind that gives each its colour and its mark.
KINDS = {"holds": "good", "does not hold": "bad", "undecided": "open"}
DEVICES = {"npu": "the NPU", "cpu": "the CPU"}
PARTS = ("loss", "gradients", "parameters", "outputs")
# The kinds of quantities that a comparison looks at: what one value is called, and what leads to the name of its place.
QUANTITIES = {
    "loss": ("loss", "at"),
    "gradient": ("gradient", "of"),
    "change": ("update", "of"),
    "inputs": ("module input", "at"),
    "upload": ("copy to the device", "at"),
    "loss scale": ("loss scale", "of"),
    "setting": ("setting", ""),
    "precision": ("precision", "of"),
    "weight": ("initial weight", ""),
    "mode": ("training mode", "at"),
}
ELAPSED = (("h", 3600), ("min", 60))


def classify_verdict(verdict: object) -> str:
    """ "good", "bad" or "open"; a word that is not known is open, never good and never bad."""
    return KINDS.get(str(verdict), "open")


def escape_unprintable(text: str) -> str:
    """The text without anything that a terminal would obey: control characters become visible escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def format_count(number: int, noun: str) -> str:
    """ "1 step", "2 steps", "1,234 steps"."""
    return f"{number:,} {noun if number == 1 else format_plural(noun)}"


def format_plural(noun: str) -> str:
    """ "steps", "entries", "passes", "copies to the device"."""
    noun, to, device = noun.partition(" to ")
    return _plural(noun) + to + device


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def step_kind(comparison: Comparison) -> str:
    """The name of a step of a comparison: "optimizer step", "backward pass", "module call"."""
    name = comparison.steps.kind or "step"
    return {"backward": "backward pass", "call": "module call"}.get(name, name)


def join_words(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def format_sentence(text: str) -> str:
    """The text with a capital at its start and a full stop at its end; a name keeps its own writing."""
    if not text:
        return ""
    first = text.split()[0] if text.split() else ""
    start = text if any(mark in first for mark in "./_(") else f"{text[:1].upper()}{text[1:]}"
    return start if start.rstrip()[-1:] in tuple(".!?。") else f"{start}."


def format_elapsed(seconds: float) -> str:
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


def format_error(value: float) -> str:
    """A difference: 0, 2.0e-06, "not finite"."""
    number = float(value)
    return "0" if number == 0 else f"{number:.1e}" if math.isfinite(number) else "not finite"


def format_bound(value: float) -> str:
    """A difference that is allowed: 3.4e-06, 0.01, "not judged"."""
    number = float(value)
    return f"{number:.2g}" if math.isfinite(number) else "not judged"


def format_size(number: float) -> str:
    """Bytes as people say them: 512 B, 1.2 MB."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = next((power for power in range(len(units)) if number < 999.5 * 1000**power), len(units) - 1)
    return f"{number / 1000**power:.3g} {units[power]}"


def kind_of(row: Quantity | Difference | Noticed) -> str:
    """The name of one value of a row: "gradient", "update", "loss scale"."""
    return QUANTITIES.get(row.kind, (row.kind or "value", ""))[0]


def describe_quantity(row: Difference | Noticed) -> str:
    """The quantity of a row: "gradient of fc1.weight", "loss at train.py:20", "setting lr"."""
    what, name = kind_of(row), row.name
    link = QUANTITIES.get(row.kind, ("", "of"))[1]
    if not name or name == what or name.startswith(f"{what} "):
        return name or what
    return " ".join(filter(None, (what, link, name)))


def format_value_count(row: Quantity) -> str:
    """How many values of a quantity were compared: "200 gradients"."""
    return format_count(row.compared, kind_of(row))


def describe_sum_order(data: Port) -> str:
    """In which other order than the CPU's the port's device added, and how many results show it; empty for the CPU's
    order."""
    sums = data.sums
    if sums is None:
        return ""
    words = f"added in another order than the CPU's (seed {sums.seed})"
    if not sums.results:
        return words
    share = sums.unequal / sums.results
    return f"{words}: {share:.0%} of {sums.results:,} results of operators in step 0 have other bits"


def format_value(one: object) -> str:
    """A value that was recorded; "nothing" for one that was not."""
    if one is None:
        return "nothing"
    return f"{float(one):.6g}" if isinstance(one, int | float) else str(one)


def is_off(row: Quantity) -> bool:
    """Whether the worst difference of a quantity is more than is allowed. One without a bound has to be equal."""
    if row.worst is None:
        return row.at is not None
    return not row.worst <= (row.allowed or 0.0)


def describe_outcome(row: ControlRow) -> str:
    """ "noticed", "NOT noticed", or "not possible" for a fault that this script has no place for."""
    if not row.possible:
        return "not possible"
    return "noticed" if row.noticed else "NOT noticed"


def describe_noticed_share(rows: Sequence[ControlRow]) -> str:
    """How many of the faults that were possible were noticed: "3 of 3 small faults noticed"; empty for none."""
    outcomes = [found for row in rows if (found := describe_outcome(row)) != "not possible"]
    return f"{outcomes.count('noticed')} of {len(outcomes)} small faults noticed" if outcomes else ""


def format_difference(row: Difference | Noticed) -> str:
    """A difference beside what explains it: "1.0e-02 (noise 1.5e-07, 3e-06 allowed)"; empty for what has no size, and
    is equal or not."""
    if row.error is None:
        return ""
    noise = row.noise if isinstance(row, Difference) else None
    known = [
        f"noise {format_error(noise)}" if noise is not None else "",
        f"{format_bound(row.allowed)} allowed" if row.allowed is not None else "",
    ]
    beside = ", ".join(filter(None, known))
    return f"{format_error(row.error)} ({beside})" if beside else format_error(row.error)


def explain_unmeasured(controls: Controls) -> str:
    """That nobody knows what the comparison would notice, and why; empty if it is known."""
    if controls.measured:
        return ""
    return f"not measured: {controls.why}" if controls.why else "not measured"


def list_yardstick_clauses(comparison: Comparison) -> list[str]:
    """The grounds of the bounds of a comparison, in clauses; none if the original did not run with noise."""
    measured, forced = comparison.yardstick, comparison.forced
    clauses = []
    if measured is not None:
        near = [
            f"{what} within {format_error(spread)}"
            for kind, what in (("loss", "loss"), ("gradient", "gradients"), ("change", "updates"))
            if (spread := measured.spread.get(kind)) is not None
        ]
        steps = format_count(measured.steps, "step")
        noise = measured.noise or "noise in the last digit"
        clauses.append(f"{steps} of the original with {noise}" + (f": {', '.join(near)}" if near else ""))
        if measured.chaotic is not None:
            clauses.append(f"from step {measured.chaotic} on rounding alone decides what the original computes")
    if forced is not None:
        clauses.append(
            f"{format_count(forced.steps, 'step')} compared one by one, each from the original's own state "
            f"({format_size(forced.bytes)})"
        )
    return clauses


def format_draw(row: Draw) -> str:
    """What a random operator of the device gave: "normal_ at train.py:12: mean 0.1, where 0 is expected"."""
    expected = format_value(row.expected_mean)
    return f"{row.operator} at {row.site}: mean {format_value(row.mean)}, where {expected} is expected"


def format_fault_place(row: ControlRow) -> str:
    """Where a fault was put: "step 19, fc1.weight"."""
    step = "" if row.step is None else f"step {row.step}"
    return ", ".join(filter(None, (step, row.where)))


def format_roundoff(row: Roundoff) -> str:
    """A rounding that the device declares: "HF32 convolution rounds to 4.9e-04"."""
    return f"{row.name} rounds to {format_error(row.roundoff)}"


def describe_end(run: Run) -> str:
    """How a run came to its end."""
    status, how = run.status, run.ended
    steps = format_count(run.steps, "step")
    if run.skipped:
        return "not run"
    if run.timed_out or how == "timeout":
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


def describe_launches(run: Run) -> str:
    """How many operators a run launched on the NPU, and in how many of its steps; empty if nobody counted."""
    evidence = run.evidence or Evidence()
    words = []
    if evidence.launches is not None:
        number = format_count(evidence.launches, "operator") if evidence.launches else "no operator"
        words.append(f"{number} launched on the NPU")
    if evidence.steps_with is not None and run.steps and evidence.launches != 0:
        words.append(f"in {evidence.steps_with:,} of {format_count(run.steps, 'step')}")
    return ", ".join(words)


def describe_device(run: Run) -> str:
    """The device that a run was given; one that it did not use is called so; empty for a run that was left out.

    Several cards are told apart by `list_rank_cards`.
    """
    name = "" if run.skipped else run.device
    if len({card.device for rank in run.cards or () for card in rank.cards}) > 1:
        name = re.sub(r"^npu:\d+", "NPUs", name)
    unused = run.evidence is not None and run.evidence.launches == 0
    return f"{name}, not used" if name and unused else name


def list_rank_cards(run: Run) -> list[str]:
    """The cards that each of several ranks opened, as "rank 1: npu:1"."""
    return [f"rank {one.rank}: {join_words([card.name for card in one.cards]) or 'none'}" for one in run.cards or ()]


def group_parts_by_device(run: Run) -> list[tuple[str, list[str]]]:
    """Where the loss, the gradients, the parameters and the outputs of a run lived: each device with those on it."""
    found: dict[str, list[str]] = {}
    for part in PARTS:
        if run.evidence is not None and (where := getattr(run.evidence, part)):
            found.setdefault(where, []).append(part)
    return [(DEVICES.get(device, device), parts) for device, parts in found.items()]


def describe_file_match(row: FileRow) -> str:
    """The word for a file that the runs left: equal, differs, not compared."""
    return "not compared" if row.equal is None else "equal" if row.equal else "differs"
