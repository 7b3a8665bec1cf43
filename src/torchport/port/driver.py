"""The steps of a port, in order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from torchport import vnpu
from torchport.compare import compare, ending
from torchport.convert import convert_tree
from torchport.findings import Finding, Result, Safety, Severity, write_atomically
from torchport.port import runs
from torchport.port.child import signals_unwind
from torchport.port.modules import copy_modules, link_data
from torchport.port.plan import (
    COMPARE,
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
from torchport.record.recording import Recording
from torchport.report.html import page

NOT_RUN = Finding(
    "TP312",
    Severity.ERROR,
    Safety.REPORT,
    None,
    "the port was not run, because the original fails by itself",
    "Make the original run to its end: if it does so on a GPU, what it needs there may be missing on this machine.",
)


def port(plan: Plan, progress: Progress) -> Result:
    """Do the steps of `plan` that are due, write OUT/result.json and OUT/report.html, and return the result.

    `data["holds"]` is the verdict, `data["diff"]` what was rewritten, `data["comparison"]` the data of the
    comparison (None where a run is missing), `data["runs"]` how each run ended. A script that fails is a
    finding. Raises TorchportError for a missing or broken script, missing files of an earlier step, or no NPU
    to run on.
    """
    check(plan)
    for step in STEPS[: STEPS.index(plan.start)]:
        plan.kept(step)
    if NPU in plan.due():
        vnpu.environment()  # raises where there is nothing to run the port on: better now than after the first run
    try:
        with signals_unwind():
            for step in plan.due():
                _DO[step](plan, progress)
    finally:
        progress.stop()
    return _collect(plan)


def _convert(plan: Plan, progress: Progress) -> None:
    progress.start(CONVERT, "")
    with plan.work(CONVERT) as folder:
        source, tree = folder / "source", folder / "tree"
        copy_modules(plan.script, source)
        converted = convert_tree(source, tree)
        link_data(plan.script.parent, tree, plan.out.resolve())
        data = {"diff": converted.data["diff"], "summary": converted.data["summary"]}
        result = dataclasses.replace(step_result(CONVERT, plan, data), findings=converted.findings)
        result.write(folder / RESULT)
    summary = data["summary"]
    progress.done(
        f"{_count(summary['files'], 'file')}, {_count(summary['automatic'] + summary['review'], 'change')}, "
        f"{_count(summary['decisions'] + summary['blockers'], 'open question')}"
    )


def _run(plan: Plan, progress: Progress, step: str) -> None:
    if step == NPU and plan.kept(REFERENCE).data["status"] != 0:
        progress.start(step, "")
        with plan.work(step) as folder:
            skipped = {"status": None, "skipped": True, "steps": 0, "seconds": 0.0, "device": ""}
            step_result(step, plan, skipped).write(folder / RESULT)
        progress.done("not run: the original fails by itself")
        return
    progress.start(step, "starting")
    data = runs.record(plan, step, progress).data
    ended = (
        "stopped: --timeout"
        if data["timed_out"]
        else f"exit status {data['status']}"
        if data["status"]
        else ""
    )
    progress.done(f"{_count(data['steps'], 'step')} on {data['device']}{', ' * bool(ended)}{ended}")


def _compare(plan: Plan, progress: Progress) -> None:
    progress.start(COMPARE, "")
    with plan.work(COMPARE) as folder:
        reference = Recording.read(plan.folder(REFERENCE))
        if plan.kept(NPU).data.get("skipped"):
            findings, comparison = (*ending(reference, "the original"), NOT_RUN), None
        else:
            result = compare(reference, Recording.read(plan.folder(NPU)))
            findings, comparison = (*result.findings, *_left_files(plan, result)), dict(result.data)
        kept = step_result(COMPARE, plan, {"comparison": comparison})
        dataclasses.replace(kept, findings=findings).write(folder / RESULT)
    progress.done(str(comparison["method"]) if comparison else "nothing to compare")


def _left_files(plan: Plan, comparison: Result) -> list[Finding]:
    """Both runs happen in one folder; where they do not do the same, what the first left there may be why."""
    names = plan.kept(REFERENCE).data["wrote"]
    if not names or not {"TP303", "TP310"}.intersection(finding.code for finding in comparison.findings):
        return []
    message = f"the original's run wrote {', '.join(names)} into the current folder, and the port's run found it there"
    hint = "If the script continues from such a file (a checkpoint, a cache), give each run a fresh one."
    return [Finding("TP321", Severity.INFO, Safety.REPORT, None, message, hint, {"files": names})]


def _collect(plan: Plan) -> Result:
    kept = {step: plan.kept(step) for step in STEPS}
    comparison = kept[COMPARE].data["comparison"]
    data: dict[str, Any] = {
        "script": str(plan.script),
        "arguments": list(plan.arguments),
        "holds": comparison is not None and comparison["holds"],
        "backend": vnpu.detect().reason,
        "summary": kept[CONVERT].data["summary"],
        "diff": kept[CONVERT].data["diff"],
        "comparison": comparison,
        "runs": {step: kept[step].data for step in (REFERENCE, NPU)},
    }
    result = Result("port", (*kept[CONVERT].findings, *kept[COMPARE].findings), data, plan.inputs())
    result.write(plan.out / RESULT)
    write_atomically(plan.out / REPORT, page(result).encode("utf-8", "backslashreplace"))
    return result


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_DO: dict[str, Callable[[Plan, Progress], None]] = {
    CONVERT: _convert,
    REFERENCE: functools.partial(_run, step=REFERENCE),
    NPU: functools.partial(_run, step=NPU),
    COMPARE: _compare,
}
