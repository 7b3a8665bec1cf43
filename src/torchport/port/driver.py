"""The steps of a port, in order."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchport import vnpu
from torchport.compare import Verdict, compare
from torchport.convert import convert_tree, edited
from torchport.convert.project import for_people
from torchport.errors import TorchportError
from torchport.findings import Finding, Result, Safety, Severity, copy_file, write_atomically
from torchport.launch.keeper import signals_unwind
from torchport.port import controls, given, judging, runs
from torchport.port.left import FileRow, compare_files
from torchport.port.lock import locked
from torchport.port.modules import link_data
from torchport.port.plan import (
    COMPARE,
    CONTROL,
    CONVERT,
    NPU,
    REFERENCE,
    REPORT,
    RESULT,
    STEPS,
    Plan,
    check,
    step_result,
)
from torchport.port.progress import Progress
from torchport.port.unconverted import unconverted
from torchport.record.recording import CALL, Recording
from torchport.report.html import page

NOT_RUN = Finding(
    "TP312",
    Severity.INFO,
    Safety.REPORT,
    None,
    "the port was not run, because the original did not reach a step",
    "Make the original reach a step here: if it does so on a GPU, what it needs there may be missing on this machine.",
)


def port(plan: Plan, progress: Progress) -> Result:
    """Do the steps of `plan` that are due, write OUT/result.json and OUT/report.html, and return the result.

    `data["verdict"]` is the word, `data["reason"]` why, `data["decide"]` what would decide it; `data["diff"]` what was
    rewritten, `data["comparison"]` the data of the comparison (None where a run is missing), `data["runs"]` how each
    run ended, `data["files"]` what they left, `data["modules"]` which of the user's modules were not converted.
    Raises TorchportError for a missing or broken script, missing files of an earlier step, no NPU to run on, or
    another port that works in OUT.
    """
    check(plan)
    for step in STEPS[: STEPS.index(plan.start)]:
        plan.kept(step)
    if plan.reference is not None:
        given.check(plan)
        _refuse_other_reference(plan)
    if NPU in plan.due():
        vnpu.environment()  # raises where there is nothing to run the port on: better now than after the first run
    try:
        with signals_unwind(), locked(plan.out):
            steps = iter(plan.due())
            for step in steps:
                if step == CONTROL and controls.has_room(plan):
                    _run_both(plan, progress)
                    next(steps)  # NPU, which follows
                else:
                    _DO[step](plan, progress)
            return _collect(plan)
    finally:
        progress.stop()


def _refuse_other_reference(plan: Plan) -> None:
    """Raise TorchportError where the step `reference` is kept from another recording than is given now."""
    if REFERENCE not in plan.due() and plan.kept(REFERENCE).data.get("given") != str(plan.reference):
        raise TorchportError(
            f"{plan.kept_in(REFERENCE)} was not made from {plan.reference}",
            hint=f"--from {REFERENCE} takes the recording, leaving --reference out keeps what is there.",
        )


def _convert(plan: Plan, progress: Progress) -> None:
    _refuse_edited(plan)
    progress.start(CONVERT, "")
    files = plan.belonging()
    summary: dict[str, Any] = {}
    findings: list[Finding] = []
    diff = ""
    with plan.work(CONVERT) as folder:
        for number, place in enumerate(plan.places()):
            source, tree = (folder / runs.part(name, number) for name in ("source", "tree"))
            source.mkdir()
            _copy([path for path in files if path.is_relative_to(place)], place, source)
            converted = convert_tree(source, tree)
            link_data(place, tree, plan.out.resolve())
            findings += converted.findings
            diff += converted.data["diff"]
            summary = _added(summary, converted.data["summary"])
        data = {"diff": diff, "summary": summary, "files": list(map(str, files))}
        once = tuple(for_people(findings))
        result = dataclasses.replace(step_result(CONVERT, plan, data), findings=once)
        result.write(folder / RESULT)
    progress.done(
        f"{_count(summary['files'], 'file')}, {_count(summary['automatic'] + summary['review'], 'change')}, "
        f"{_count(summary['decisions'] + summary['blockers'], 'open question')}"
    )


def _refuse_edited(plan: Plan) -> None:
    """Raise TorchportError where converting again would overwrite what somebody changed in the port."""
    lost = [name for tree in plan.kept_in(CONVERT).glob("tree*") for name in edited(tree)]
    if lost and not plan.force:
        raise TorchportError(
            f"{plan.kept_in(CONVERT)} was changed since torchport wrote it: {', '.join(lost[:5])}",
            hint="`--from npu` runs the port as it is now, --force converts again and overwrites it.",
        )


def _copy(files: list[Path], place: Path, target: Path) -> None:
    for path in files:
        copy = target / path.relative_to(place)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy_file(path, copy)


def _added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two summaries of conversions as one."""
    if not one:
        return dict(other)
    return {
        key: [sum(pair) for pair in zip(one[key], value, strict=True)]
        if isinstance(value, list)
        else one[key] + value
        if isinstance(value, (int, float))
        else value
        for key, value in other.items()
    }


def _run(plan: Plan, progress: Progress, step: str) -> None:
    if step == NPU and not plan.kept(REFERENCE).data["steps"]:
        progress.start(step, "")
        with plan.work(step) as folder:
            skipped: dict[str, object] = {
                "status": None, "skipped": True, "steps": 0, "seconds": 0.0, "device": "", "ended": "", "files": [],
                "modules": [], "outside": [], "notes": [],
            }  # fmt: skip
            step_result(step, plan, skipped).write(folder / RESULT)
        progress.done("not run: the original did not reach a step")
        return
    if step == REFERENCE and plan.reference is not None:
        progress.start(step, "")
        with plan.work(step) as folder:
            placed = given.place(plan, folder)
            step_result(step, plan, placed).write(folder / RESULT)
        progress.done(f"{_count(placed['steps'], 'step')} on {placed['device']}, recorded before")
        return
    progress.start(step, "starting")
    with plan.work(step) as folder:
        data = runs.record(plan, step, folder, progress).data
    progress.done(_came_of(data))


def _came_of(data: Mapping[str, Any]) -> str:
    """A run in a few words."""
    why = {
        "timeout": "stopped: --timeout", "memory": "stopped: the machine's memory is used up",
        "steps": "ended after --steps", "enough": "ended: enough to compare",
    }.get(data["ended"], f"exit status {data['status']}" if data["status"] else "")  # fmt: skip
    return f"{_count(data['steps'], 'step')} on {data['device']}{', ' * bool(why)}{why}"


def _control(plan: Plan, progress: Progress) -> None:
    progress.start(CONTROL, "starting")
    with plan.work(CONTROL) as folder:
        data = controls.control(plan, folder, progress).data
    progress.done(_came_of_control(data))


def _came_of_control(data: Mapping[str, Any]) -> str:
    what = "noise and faults" if data["faults"] else "noise"
    return data["why"] or f"{_count(data['steps'], 'step')} of the original with {what}"


def _run_both(plan: Plan, progress: Progress) -> None:
    """The control run and the port at the same time: neither is written for the other, and a machine has several
    cores."""
    stopped = threading.Event()
    beside = progress.beside()
    failures: list[BaseException] = []

    def control() -> None:
        try:
            beside.start(CONTROL, "")
            data = controls.control(plan, aside, beside, stopped=stopped).data
            beside.done(_came_of_control(data))
        except controls.StoppedError:
            pass
        except BaseException as failure:
            failures.append(failure)

    # The control run's folder is finished first: doing so takes away what later steps have left.
    with plan.work(NPU) as folder, plan.work(CONTROL) as aside:
        thread = threading.Thread(target=control)
        progress.start(NPU, "starting")
        thread.start()
        try:
            data = runs.record(plan, NPU, folder, progress).data
            seconds = progress.seconds()
            while thread.is_alive():
                progress.update("done; the control run goes on")
                thread.join(0.1)
        finally:
            stopped.set()
            thread.join()
        for failure in failures:
            raise failure
    progress.add(beside)
    progress.done(_came_of(data), seconds)


def _compare(plan: Plan, progress: Progress) -> None:
    progress.start(COMPARE, "")
    with plan.work(COMPARE) as folder:
        reference = Recording.read(plan.kept_in(REFERENCE))
        comparison: dict[str, Any] | None = None
        rows: list[FileRow] = []
        if plan.kept(NPU).data["skipped"]:
            findings = [*compare(reference, reference).findings, NOT_RUN]
        else:
            port = Recording.read(plan.kept_in(NPU))
            result = judging.judged(plan, folder, reference, port, progress)
            comparison = dict(result.data)
            if "given" not in plan.kept(REFERENCE).data:  # else only the port's files are known
                rows = compare_files(plan.kept_in(REFERENCE) / runs.FILES, plan.kept_in(NPU) / runs.FILES)
            findings = [*result.findings, *_files_findings(rows, comparison)]
        imported = [Path(path) for step in (REFERENCE, NPU) for path in plan.kept(step).data["modules"]]
        mentions = unconverted(sorted(set(imported)), set(map(Path, plan.kept(CONVERT).data["files"])))
        if mentions:
            findings.append(runs.unconverted_finding(mentions))
        grounds = "" if comparison is None else str(comparison["reason"])
        verdict = Verdict.of(findings, grounds)
        if comparison is not None:
            comparison |= {
                "verdict": str(verdict.word),
                "reason": verdict.reason,
                "decide": list(verdict.decide),
            }
        data = {
            "comparison": comparison,
            "verdict": str(verdict.word),
            "reason": verdict.reason,
            "decide": list(verdict.decide),
            "files": [dataclasses.asdict(row) for row in rows],
            "modules": [dataclasses.asdict(row) | {"path": str(row.path)} for row in mentions],
        }
        folders = (plan.kept_in(REFERENCE), plan.kept_in(NPU))
        placed = runs.original_places(tuple(findings), *folders)
        dataclasses.replace(step_result(COMPARE, plan, data), findings=placed).write(folder / RESULT)
    progress.done(f"{comparison['method']}: {verdict.word}" if comparison else str(verdict.word))


def _files_findings(rows: list[FileRow], comparison: dict[str, Any]) -> Iterator[Finding]:
    """Files that differ: evidence against a port that leaves nothing else to judge, else something to know."""
    alone = comparison["steps"]["kind"] == CALL
    for row in rows:
        if row.equal is False:
            yield Finding(
                "TP348",
                Severity.ERROR if alone else Severity.INFO,
                Safety.REPORT,
                None,
                f"the file {row.name} differs: {row.note or f'{row.port} against {row.reference}'}",
                "The runs' files are in OUT/reference/files and OUT/npu/files.",
            )


def _collect(plan: Plan) -> Result:
    kept = {step: plan.kept(step) for step in STEPS}
    judged = kept[COMPARE].data
    comparison = judged["comparison"]
    data: dict[str, Any] = {
        **{name: judged[name] for name in ("verdict", "reason", "decide", "files", "modules", "comparison")},
        "script": plan.name,
        "command": list(plan.launch.command),
        "folder": str(plan.folder),
        "port": _port_path(plan),
        "backend": _backend(),
        "summary": kept[CONVERT].data["summary"],
        "diff": kept[CONVERT].data["diff"],
        "runs": {step: dict(kept[step].data) for step in (REFERENCE, CONTROL, NPU)},
        "notes": list(_notes(plan, kept)),
    }
    for evidence in (comparison or {}).get("evidence", [])[:1]:
        data["runs"][NPU]["evidence"] = evidence
    result = Result("port", (*kept[CONVERT].findings, *kept[COMPARE].findings), data, plan.inputs())
    result.write(plan.out / RESULT)
    write_atomically(plan.out / REPORT, page(result).encode("utf-8", "backslashreplace"))
    return result


def _notes(plan: Plan, kept: dict[str, Result]) -> Iterator[str]:
    if kept[REFERENCE].data["ended"] == "enough":
        steps, seconds = runs.ENOUGH
        yield (
            f"both runs were ended after {kept[REFERENCE].data['steps']} steps: every curve had {steps} and "
            f"{seconds:.0f} s had passed; --steps N runs N"
        )
    if kept[REFERENCE].data["ended"] == "steps" == kept[NPU].data["ended"]:
        yield f"both runs were ended after {plan.steps} steps (--steps): what the script does at its end was not run"
    for step in (REFERENCE, NPU):
        yield from kept[step].data["notes"]
    why = kept[CONTROL].data["why"]
    if why and kept[REFERENCE].data["steps"]:
        yield f"the control run, which measures what rounding does, failed: {why}"


def _backend() -> str:
    backend = vnpu.detect()
    return "virtual NPU" if backend.kind is vnpu.Kind.VNPU else "NPU"


def _port_path(plan: Plan) -> str:
    """The converted script, for people."""
    path = plan.kept_in(CONVERT) / "tree"
    for number, place in enumerate(plan.places()):
        if plan.script is not None and plan.script.is_relative_to(place):
            path = plan.kept_in(CONVERT) / runs.part("tree", number) / plan.script.relative_to(place)
            break
    return str(path.relative_to(plan.folder) if path.is_relative_to(plan.folder) else path)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_DO: dict[str, Callable[[Plan, Progress], None]] = {
    CONVERT: _convert,
    REFERENCE: functools.partial(_run, step=REFERENCE),
    CONTROL: _control,
    NPU: functools.partial(_run, step=NPU),
    COMPARE: _compare,
}
