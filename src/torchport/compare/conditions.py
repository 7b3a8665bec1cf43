"""What has to be true before two runs can be compared at all: that both ran, each where it should, and far enough."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from torchport.compare import causes
from torchport.diagnose import diagnose_text
from torchport.findings import Finding, Location, Safety, Severity
from torchport.record.cards import ELSEWHERE_TOO
from torchport.record.recording import OPTIMIZER, Process, Recording
from torchport.results.codec import to_json
from torchport.results.comparison import Evidence
from torchport.results.port import Card
from torchport.source.project import find_package

_OF_THE_DEVICE = re.compile(r"error code(?: is|:) ?507\d{3}")

# Errors of a process that say only that its child has failed: of torchrun, torch.multiprocessing.spawn, subprocess.
_OF_A_CHILD = frozenset(("ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError"))
TIMEOUT, MEMORY = "timeout", "memory"


def reference_conditions(reference: Recording) -> Iterator[Finding]:
    """What keeps the original's run from being a reference."""
    yield from _our_bug(reference)
    touched = [event["touched"] for event in reference.of_kind("npu") if event["touched"]]
    if touched:
        yield open_finding(
            "TP342",
            f"the original's run, which is the reference, used an NPU itself: {touched[0]}",
            "Keep the script from importing torch_npu where there is CUDA, or start torchport in a shell without CANN.",
        )
    if reference.stopped == MEMORY:
        yield _too_small("the original")
    elif reference.stopped == TIMEOUT:
        if not reference.steps:
            yield open_finding(
                "TP341",
                f"the original did not reach a step within {reference.end.limit if reference.end else 0:g} s",
                "Give a longer --timeout, or arguments for a shorter run.",
                location=_place(reference),
            )
    elif has_failed(reference):
        yield _failed_reference(reference)


def port_conditions(reference: Recording, port: Recording) -> Iterator[Finding]:
    """What the way in which the port's run ended says."""
    bugs = list(_our_bug(port))
    if bugs:
        yield from bugs
        return
    if port.stopped == MEMORY:
        yield _too_small("the port")
        return
    if port.stopped == TIMEOUT:
        # Of an original that was stopped as well, what both did is what there is to judge.
        if port.steps < reference.steps and (reference.stopped != TIMEOUT or not port.steps):
            yield open_finding(
                "TP311",
                f"the port did not finish within {port.end.limit if port.end else 0:g} s: {port.steps} of "
                f"{reference.steps} steps",
                "Give a longer --timeout, or --steps.",
                location=_place(port),
            )
        return
    gap = causes.virtual_gap(_words(port)) if has_failed(port) else ""
    if gap:
        yield open_finding(
            "TP343",
            f"the virtual NPU lacks something that the port needs: {gap}",
            "Run the port on hardware; `torchport vnpu ops` lists what the virtual NPU has.",
            location=_error_place(port),
            stderr=port.last_messages,
        )
    elif port.status == -signal.SIGKILL:
        yield _too_small("the port")
    elif has_failed(port) and not _same_end(reference, port):
        yield error_finding(
            "TP310",
            f"the port ended with {ended_how(port)} {_reached(port)}{_cause(port)}",
            _name_library(port) or _remedy(port),
            location=_error_place(port),
            stderr=port.last_messages,
        )
    elif not (has_failed(port) or has_failed(reference) or reference.stopped) and port.status != reference.status:
        caught = find_last_exception(port.last_messages) if has_given_up(reference, port) else ""
        yield error_finding(
            "TP310",
            f"the port ends with {ended_how(port)}, the original with {ended_how(reference)}"
            + (f"; the script printed an exception: {caught}" if caught else ""),
            stderr=port.last_messages if caught else [],
        )


def step_conditions(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Whether there are steps, as many on both sides, in as many ranks."""
    if not reference.steps:
        if not has_failed(reference) and not reference.stopped:
            status = f" (exit status {reference.status})" if reference.status else ""
            yield open_finding(
                "TP340",
                f"no step was reached: the original ends without training or calling a module{status}",
                "Give the script arguments with which it trains. A step is an optimizer.step(), without one a "
                "backward(), without one a module call.",
                stderr=reference.last_messages,
            )
        return
    cut_short = port.stopped in (TIMEOUT, MEMORY)
    if has_given_up(reference, port):
        return  # its status is said
    if len(reference.trained) != len(port.trained) and not has_failed(port) and not cut_short:
        yield error_finding(
            "TP303",
            f"the original trains in {_processes(reference)}, the port in {_processes(port)}",
            "Look for conditions on the number of devices.",
        )
        return
    if has_failed(port) or cut_short or has_failed(reference):
        return  # it is plain why they are fewer
    if port.steps != reference.steps and not (reference.stopped == TIMEOUT and port.steps > reference.steps):
        yield error_finding(
            "TP303",
            f"the original does {reference.steps} steps, the port {port.steps}",
            "Look for conditions on the device, early stops, and files that the script continues from.",
        )


ELSEWHERE = "Look for a device that is chosen in a module which was not converted, or by an argument (--device)."
# --device cpu, device=cpu, trainer.accelerator=cpu; --cpu, --use_cpu; --no-cuda.
_EXCEPTION = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|\Z)")
_CPU = re.compile(r"(?:[-+~]{0,2}[\w./@-]+=)?cpu|--?(?:use[-_])?cpu|--?(?:no|disable)[-_](?:cuda|gpu|accel)")
NOWHERE = (
    "If the script is told its device, tell it the GPU's, from which the port gets the NPU's: torchport port SCRIPT -- "
    "--device cuda. Else move the model and its batches to a device in the original, such as torch.device('cuda')."
)


def use_of_npu(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Whether the port ran on the NPU in every step; nothing of one that failed before it came to train."""
    for theirs, process in zip(reference.trained, port.trained, strict=False):
        if has_failed(port) and process.step_kind != theirs.step_kind:
            continue
        used = collect_evidence(process)
        if used.steps_with is not None and used.steps_with < len(process.steps):
            without = len(process.steps) - used.steps_with
            where = "" if process.rank is None else f" of rank {process.rank}"
            yield _unused(f"{without} of {len(process.steps)} steps{where} launched no operator there", used, reference)
        elif _on_host(used):
            yield _unused("loss, gradients and parameters are on the CPU", used, reference)


def collect_evidence(process: Process) -> Evidence:
    """What shows where a process computed: operators launched in all, in how many of its steps (None where nothing
    counts them), and the devices of loss, parameters, gradients and outputs."""
    losses, updates, called = process.of_kind("loss"), process.of_kind("step"), process.of_kind("call")
    counts = [event["launches"] for event in process.events if "launches" in event]
    counted = bool(counts) and None not in counts
    return Evidence(
        launches=counts[-1] if counted else None,
        steps_with=_steps_with(process) if counted else None,
        loss=_device(losses, "device"),
        parameters=_device(updates, "device"),
        gradients=_device(updates, "gradient"),
        outputs=_device(called, "device"),
    )


def _steps_with(process: Process) -> int:
    """In how many steps an operator was launched.

    Reading a loss waits for the device, so the count there is that of all that came before. An optimizer step without
    a loss of its own (two optimizers after one backward pass) is taken as the one before it.
    """
    if process.step_kind != OPTIMIZER:
        counts = [0, *(event["launches"] for event in process.steps)]
        return sum(after > before for before, after in pairwise(counts))
    kinds: tuple[str, ...] = ("loss", "call")
    before_steps = itertools.takewhile(lambda event: event["kind"] != "step", process.events)
    if not any(event["kind"] in kinds for event in before_steps):  # gradients that are made by hand
        kinds = ("step",)
    with_, before, now, used = 0, 0, None, False
    for event in process.events:
        if event["kind"] in kinds:
            now = event["launches"]
        if event["kind"] == "step":
            if now is not None:
                used, before, now = now > before, now, None
            with_ += used
    return with_


def _device(events: list[Any], field: str) -> str:
    found = {event[field] for event in events} - {""}
    return "npu" if found == {"npu"} else "mixed" if "npu" in found else next(iter(sorted(found)), "")


def _on_host(used: Evidence) -> bool:
    known = list(filter(None, (used.loss, used.parameters, used.gradients, used.outputs)))
    return bool(known) and all(device == "cpu" for device in known)


def _moves_to_gpu(reference: Recording) -> bool:
    """Whether the original moves anything to a CUDA device; true of a recording that does not tell."""
    told = reference.of_kind("parameters")
    devices = {device for event in told for device in event.get("devices", ["cuda"])}
    return not told or "cuda" in devices or any(event["cuda"] for event in reference.of_kind("placed"))


def _told_cpu(reference: Recording) -> str:
    """The argument by which the script was told to train on the CPU; "" if there is none."""
    words = [str(word) for word in reference.head.get("command", ())]
    for before, word in pairwise(["", *words]):
        if _CPU.fullmatch(word):
            return f"{before} {word}" if before.startswith("-") and not word.startswith("-") else word
    return ""


def _unused(detail: str, used: Evidence, reference: Recording) -> Finding:
    moved = _moves_to_gpu(reference)
    also = "" if moved else "; the original moves no module and no data to a GPU either"
    word = _told_cpu(reference)
    package = find_package(Path(next((event["site"] for event in reference.of_kind("upload")), "").rpartition(":")[0]))
    if word:
        hint = f"The script was told the CPU, by {word}. Leave it out."
    elif package:
        hint = (
            f"{package} is installed, so it is not converted, and it moves the data in the original alone. If it knows "
            "CUDA and no NPU, `torchport run` redirects its calls to the NPU."
        )
    else:
        hint = ELSEWHERE if moved else NOWHERE
    return error_finding("TP345", f"the port did not use the NPU: {detail}{also}", hint, **to_json(used))


def replicas_equal(port: Recording) -> Iterator[Finding]:
    """Whether the ranks of a job ended with the same parameters, where they are replicas."""
    ends: dict[int, dict[float, list[int]]] = {}
    for process in port.trained:
        for event in process.of_kind("replica"):
            ranks = ends.setdefault(event.get("number", 0), {}).setdefault(float(event["checksum"]), [])
            ranks.append(process.rank or 0)
    for values in ends.values():
        if len(values) > 1:
            first, second, *_ = sorted(values.values())
            yield error_finding(
                "TP346",
                f"the replicas differ at the end: the parameters of rank {second[0]} are not those of rank {first[0]}",
                "Gradients are not reduced over all ranks, or something changes parameters in one rank only.",
            )
            return


def read_cards(process: Process) -> list[Card]:
    """The NPUs that the process had opened when it last told."""
    told = process.of_kind("cards")
    return [Card(**row) for row in told[-1]["cards"]] if told else []


def check_cards(port: Recording) -> Iterator[Finding]:
    """Whether a rank holds memory on a card that another works on."""
    opened = {process.rank or 0: cards for process in port.trained if (cards := read_cards(process))}
    owners = {cards[0].number: rank for rank, cards in reversed(opened.items())}
    for rank, (own, *others) in opened.items():
        for card in others:
            if card.number != own.number and card.number in owners:
                yield open_finding(
                    "TP365",
                    f"rank {rank} works on {own.name} and holds {card.held / 2**20:,.0f} MiB of {card.name} as well, "
                    f"the card of rank {owners[card.number]}",
                    ELSEWHERE_TOO,
                )


def has_failed(recording: Recording) -> bool:
    """Whether a run ended by an exception or a signal; a status that the script asked for is its own affair."""
    if recording.stopped:
        return False
    if recording.status is None or recording.status < 0:
        return True
    return recording.status != 0 and bool(recording.of_kind("error"))


def has_given_up(reference: Recording, port: Recording) -> bool:
    """Whether the port ended itself before the original's last step, with a status that the original does not have: the
    script caught an exception, as hydra does."""
    early = port.steps < reference.steps or len(port.trained) < len(reference.trained)
    return early and not port.stopped and bool(port.status) and port.status != reference.status


def find_last_exception(messages: Sequence[str]) -> str:
    """The last line that names an exception, as a traceback ends; "" if there is none."""
    return next((line.strip() for line in reversed(messages) if _EXCEPTION.match(line)), "")


def ended_how(recording: Recording) -> str:
    """The end of a run in words."""
    status = recording.status
    if status is None:
        return "an unknown status"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"


def _our_bug(recording: Recording) -> Iterator[Finding]:
    for event in recording.of_kind("error"):
        # A kernel's failure comes up wherever the device is next waited for, and the recorder waits often.
        if event.get("ours") and not _OF_THE_DEVICE.search(event["error"]):
            yield open_finding(
                "TP351",
                f"torchport's own recorder failed: {event['error']}",
                "This is a bug in torchport: please report it with the last lines of stderr.",
                stderr=recording.last_messages,
            )
            return


def _failed_reference(reference: Recording) -> Finding:
    why, remedy = causes.explain_failure(_words(reference))
    detail = f": {why}" if why else ""
    text = f"the original fails here {_reached(reference)}{detail} ({ended_how(reference)}{_cause(reference)})"
    return open_finding(
        "TP340",
        text,
        remedy
        or _remedy(reference)
        or "Make the original run to its end on this machine; what it needs of a GPU machine may be missing here.",
        location=_error_place(reference),
        stderr=reference.last_messages,
    )


def _words(recording: Recording) -> str:
    errors = [event["error"] for event in recording.of_kind("error")]
    return "\n".join([*errors, *recording.last_messages])


def _remedy(recording: Recording) -> str:
    """What the rows of knowledge/errors say of a run's last words; "" where no row knows them."""
    result = diagnose_text(_words(recording))
    if result.data["answer"] != "cause" or result.data["row"] == "script.exception":
        return ""
    first = result.findings[0]
    return f"{first.message[:1].upper()}{first.message[1:]} {first.hint} (torchport explain {result.data['row']})"


def _name_library(port: Recording) -> str:
    """The advice if an installed library that was not converted ended the run with a word about CUDA, else ""."""
    error = _first_error(port)
    package = find_package(Path(error["path"])) if error else ""
    if not error or not package or package.startswith("torch") or "cuda" not in error["error"].lower():
        return ""
    return (
        f"{package} is installed and asks torch.cuda. `torchport run` redirects these calls to the NPU; for a port of "
        f"its own convert a copy of {package}'s source."
    )


def _same_end(reference: Recording, port: Recording) -> bool:
    theirs, ours = ([event["error"].partition(":")[0] for event in one.of_kind("error")] for one in (reference, port))
    return has_failed(reference) and reference.status == port.status and theirs == ours


def _cause(recording: Recording) -> str:
    error = _first_error(recording)
    return f": {error['error']}" if error and error["error"] else ""


def _error_place(recording: Recording) -> Location | None:
    error = _first_error(recording)
    return _location(error["path"], error["line"]) if error else None


def _first_error(recording: Recording) -> Mapping[str, Any] | None:
    """The first error, rank by rank; a launcher's, which says only that a rank has failed, if there is no other."""
    errors = recording.of_kind("error")
    own = (error for error in errors if error["error"].partition(":")[0].rpartition(".")[2] not in _OF_A_CHILD)
    return next(own, errors[0] if errors else None)


def _place(recording: Recording) -> Location | None:
    return _location(recording.end.path, recording.end.line) if recording.end else None


def _location(path: str, line: int) -> Location | None:
    return Location(path, line, 1, line, 1) if path else None


def _reached(recording: Recording) -> str:
    steps = recording.steps
    return f"after {steps} step{'' if steps == 1 else 's'}" if steps else "before the first step"


def _processes(recording: Recording) -> str:
    number = len(recording.trained)
    return f"{number} process{'' if number == 1 else 'es'}"


def _too_small(who: str) -> Finding:
    return open_finding(
        "TP344",
        f"this machine has too little memory for {who}",
        "Give arguments for a smaller batch or model, or run it on a larger machine.",
    )


def open_finding(
    code: str, message: str, hint: str = "", *, location: Location | None = None, **evidence: Any
) -> Finding:
    """A finding that leaves the question open."""
    return Finding(code, Severity.WARNING, Safety.REPORT, location, message, hint, evidence)


def error_finding(
    code: str, message: str, hint: str = "", *, location: Location | None = None, **evidence: Any
) -> Finding:
    """A finding that speaks against the port."""
    return Finding(code, Severity.ERROR, Safety.REPORT, location, message, hint, evidence)
