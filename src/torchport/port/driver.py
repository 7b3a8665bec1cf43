"""The steps of a port, in order."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchport import vnpu
from torchport.compare import Verdict, compare_recordings
from torchport.compare.conditions import has_failed
from torchport.compare.verdict import Word
from torchport.convert import convert_tree, list_edited_files
from torchport.convert.project import for_people
from torchport.errors import TorchportError
from torchport.findings import Finding, Result, Safety, Severity, copy_file, write_atomically
from torchport.launch.keeper import signals_unwind
from torchport.port import controls, given, judging, runs
from torchport.port.lock import lock_folder
from torchport.port.modules import link_data
from torchport.port.outcomes import DIFFERS, choose_tolerance, compare_outcomes, judge_outcomes, report_outcomes
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
    check_plan,
    step_result,
)
from torchport.port.printed import NAME, PRINTED
from torchport.port.progress import Progress
from torchport.port.sums import measure_sum_order
from torchport.port.unconverted import find_unconverted
from torchport.record.recording import CALL, Recording
from torchport.report.html import render_page
from torchport.results.comparison import Comparison
from torchport.results.conversion import Summary
from torchport.results.port import ControlRun, Conversion, FileRow, Judged, Port, PortRuns, Run, SumOrder

SUMS = "sums"  # below compare/, one step of both runs
NAMED = 2  # files of those that were not compared
NOT_RUN = Finding(
    "TP312",
    Severity.INFO,
    Safety.REPORT,
    None,
    "the port was not run, because the original did not reach a step",
    "Make the original reach a step here: if it does so on a GPU, what it needs there may be missing on this machine.",
)


def run_port(plan: Plan, progress: Progress) -> Result[Port]:
    """Do the steps of `plan` that are due, write OUT/result.json and OUT/report.html, and return the result.

    Raises TorchportError for a missing or broken script, missing files of an earlier step, no NPU to run on, or
    another port that works in OUT.
    """
    check_plan(plan)
    steps = _Steps(plan, progress)
    if plan.reference is not None:
        given.check_reference(plan)
        _refuse_other_reference(plan, steps.runs)
    if NPU in plan.list_due_steps():
        vnpu.environment()  # raises where there is nothing to run the port on: better now than after the first run
    try:
        with signals_unwind(), lock_folder(plan.out):
            return steps.walk()
    finally:
        progress.stop()


def _refuse_other_reference(plan: Plan, kept: Mapping[str, Run]) -> None:
    """Raise TorchportError if the step `reference` is kept from another recording than is given now."""
    if REFERENCE in kept and kept[REFERENCE].given != str(plan.reference):
        raise TorchportError(
            f"{plan.kept_in(REFERENCE)} was not made from {plan.reference}",
            hint=f"--from {REFERENCE} takes the recording, leaving --reference out keeps what is there.",
        )


class _Steps:
    """The steps of one port. Each hands its result on to the next, and leaves it in its folder for a later port.

    The results of steps that are not due are read from their folders.
    """

    conversion: Result[Conversion]
    control: ControlRun
    judged: Result[Judged]

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan = plan
        self.progress = progress
        self.runs: dict[str, Run] = {}
        kept = STEPS[: STEPS.index(plan.start)]
        if CONVERT in kept:
            self.conversion = plan.load_step_result(CONVERT, Conversion)
        self.runs |= {step: plan.load_step_result(step, Run).data for step in (REFERENCE, NPU) if step in kept}
        if CONTROL in kept:
            self.control = plan.load_step_result(CONTROL, ControlRun).data

    def walk(self) -> Result[Port]:
        """Do the steps that are due, and collect the results of all."""
        due = self.plan.list_due_steps()
        if CONVERT in due:
            self._convert()
        if REFERENCE in due:
            self._run(REFERENCE)
        if CONTROL in due and controls.may_run_beside(self.plan):
            self._run_both()
        else:
            if CONTROL in due:
                self._run_control()
            if NPU in due:
                self._run(NPU)
        self._compare()
        return self._collect()

    def _convert(self) -> None:
        plan = self.plan
        _refuse_edited(plan)
        self.progress.start_step(CONVERT, "")
        files = plan.list_converted_files()
        summary = Summary()
        findings: list[Finding] = []
        diff = ""
        with plan.make_step_folder(CONVERT) as folder:
            for number, place in enumerate(plan.list_viewed_folders()):
                source, tree = (folder / runs.name_view_folder(name, number) for name in ("source", "tree"))
                source.mkdir()
                tree.mkdir()
                if here := [path for path in files if path.is_relative_to(place)]:
                    _copy(here, place, source)
                    converted = convert_tree(source, tree)
                    findings += converted.findings
                    diff += converted.data["diff"]
                    summary += converted.data["summary"]
                link_data(place, tree, plan.out.resolve())
            result = step_result(CONVERT, plan, Conversion(plan.command, diff, summary, tuple(map(str, files))))
            self.conversion = dataclasses.replace(result, findings=for_people(findings))
            self.conversion.write(folder / RESULT)
        self.progress.finish_step(
            f"{_count(summary.files, 'file')}, {_count(summary.changes, 'change')}, "
            f"{_count(summary.left, 'open question')}"
        )

    def _run(self, step: str) -> None:
        plan, progress = self.plan, self.progress
        if step == NPU and not self.runs[REFERENCE].steps:
            progress.start_step(step, "")
            with plan.make_step_folder(step) as folder:
                run = Run(plan.command, None, 0, 0.0, "", "", files=(), modules=(), notes=(), skipped=True)
                step_result(step, plan, run).write(folder / RESULT)
            words = "not run: the original did not reach a step"
        elif step == REFERENCE and plan.reference is not None:
            progress.start_step(step, "")
            with plan.make_step_folder(step) as folder:
                run = given.place_reference(plan, folder)
                step_result(step, plan, run).write(folder / RESULT)
            words = f"{_count(run.steps, 'step')} on {run.device}, recorded before"
        else:
            progress.start_step(step, "starting")
            with plan.make_step_folder(step) as folder:
                run = runs.record_side(plan, step, folder, progress)
            words = _came_of(run)
        self.runs[step] = run
        progress.finish_step(words)

    def _run_control(self) -> None:
        self.progress.start_step(CONTROL, "starting")
        with self.plan.make_step_folder(CONTROL) as folder:
            self.control = controls.run_control(self.plan, folder, self.progress)
        self.progress.finish_step(_came_of_control(self.control))

    def _run_both(self) -> None:
        """Run the control run and the port at the same time: neither is written for the other, and a machine has
        several cores."""
        plan, progress = self.plan, self.progress
        stopped = threading.Event()
        beside = progress.make_deferred()
        failures: list[BaseException] = []

        def control() -> None:
            try:
                beside.start_step(CONTROL, "")
                self.control = controls.run_control(plan, aside, beside, stopped=stopped)
                beside.finish_step(_came_of_control(self.control))
            except controls.StoppedError:
                pass
            except BaseException as failure:
                failures.append(failure)

        # The control run's folder is finished first: doing so takes away what later steps have left.
        with plan.make_step_folder(NPU) as folder, plan.make_step_folder(CONTROL) as aside:
            thread = threading.Thread(target=control)
            progress.start_step(NPU, "starting")
            thread.start()
            try:
                self.runs[NPU] = runs.record_side(plan, NPU, folder, progress)
                seconds = progress.elapsed_seconds()
                while thread.is_alive():
                    progress.update("done; the control run goes on")
                    thread.join(0.1)
            finally:
                stopped.set()
                thread.join()
            for failure in failures:
                raise failure
        progress.show_deferred(beside)
        progress.finish_step(_came_of(self.runs[NPU]), seconds)

    def _compare(self) -> None:
        plan = self.plan
        self.progress.start_step(COMPARE, "")
        folders = (plan.kept_in(REFERENCE), plan.kept_in(NPU))
        with plan.make_step_folder(COMPARE) as folder:
            reference = Recording.from_directory(folders[0])
            comparison: Comparison | None = None
            rows: list[FileRow] = []
            sums: SumOrder | None = None
            if self.runs[NPU].skipped:
                findings = [*compare_recordings(reference, reference).findings, NOT_RUN]
            else:
                port = Recording.from_directory(folders[1])
                result = judging.judge_runs(plan, folder, reference, port, self.control, self.progress)
                comparison = result.data
                sums = measure_sum_order(plan, folder / SUMS, self.progress)
                if self.runs[REFERENCE].given is None:  # else only the port's files are known
                    rows = compare_outcomes(*folders, choose_tolerance(comparison))
                    if Verdict.from_findings(result.findings, "").word is not Word.DOES_NOT_HOLD:
                        formats = judging.find_formats(self.control, port)
                        rows = judge_outcomes(plan, folder, rows, comparison, self.progress, formats)
                alone, died = comparison.steps.kind == CALL, has_failed(port)
                findings = [*result.findings, *report_outcomes(rows, alone=alone, died=died)]
            imported = {Path(path) for step in (REFERENCE, NPU) for path in self.runs[step].modules}
            mentions = find_unconverted(sorted(imported), set(map(Path, self.conversion.data.files)))
            if mentions:
                findings.append(runs.unconverted_finding(mentions))
            findings += runs.report_configurations(plan, self.runs[NPU], self.conversion.data.files)
            verdict = Verdict.from_findings(findings, "" if comparison is None else comparison.reason)
            word, reason, decide = str(verdict.word), verdict.reason, verdict.decide
            if comparison is not None:
                comparison = dataclasses.replace(comparison, verdict=word, reason=reason, decide=decide)
            unchecked = () if comparison is None else tuple(self._unchecked(comparison, findings, rows))
            files = tuple(row for row in rows if row.kind != PRINTED)
            data = Judged(plan.command, comparison, word, reason, decide, files, tuple(mentions), unchecked, sums)
            placed = runs.original_places(tuple(findings), *folders)
            self.judged = dataclasses.replace(step_result(COMPARE, plan, data), findings=placed)
            self.judged.write(folder / RESULT)
        self.progress.finish_step(f"{comparison.method}: {verdict.word}" if comparison else str(verdict.word))

    def _unchecked(self, comparison: Comparison, findings: Sequence[Finding], rows: Sequence[FileRow]) -> Iterator[str]:
        """Name, in a few words each, all that was not compared, although a reader may take it for compared."""
        yield from comparison.unchecked
        judged = any(finding.code == DIFFERS and finding.severity is Severity.ERROR for finding in findings)
        differing = [row.name for row in rows if row.equal is False and not judged]
        unread = [row.name for row in rows if row.equal is None]
        if NAME in (*differing, *unread):
            yield "printed numbers that differ"
        differing, unread = ([name for name in names if name != NAME] for names in (differing, unread))
        words = [
            f"{len(names)} {what}: {', '.join(names[:NAMED])}"
            for what, names in (("that differ", differing), ("of other formats", unread))
            if names
        ]
        if words:
            yield f"files ({'; '.join(words)})"
        if self.runs[REFERENCE].ended in ("steps", "enough"):
            yield f"what the script does after step {self.runs[REFERENCE].steps - 1}"

    def _collect(self) -> Result[Port]:
        plan, judged = self.plan, self.judged.data
        npu = self.runs[NPU]
        if judged.comparison is not None and judged.comparison.evidence:
            npu = dataclasses.replace(npu, evidence=judged.comparison.evidence[0])
        data = Port(
            verdict=judged.verdict,
            reason=judged.reason,
            decide=judged.decide,
            files=judged.files,
            modules=judged.modules,
            comparison=judged.comparison,
            script=plan.name,
            command=plan.command,
            folder=str(plan.folder),
            port=_port_path(plan),
            backend=_backend(),
            summary=self.conversion.data.summary,
            diff=self.conversion.data.diff,
            runs=PortRuns(self.runs[REFERENCE], self.control, npu),
            notes=tuple(_notes(plan, self.runs, self.control)),
            unchecked=judged.unchecked,
            sums=judged.sums,
        )
        result = Result("port", (*self.conversion.findings, *self.judged.findings), data, plan.hash_inputs())
        result.write(plan.out / RESULT)
        write_atomically(plan.out / REPORT, render_page(result).encode("utf-8", "backslashreplace"))
        return result


def _refuse_edited(plan: Plan) -> None:
    """Raise TorchportError where converting again would overwrite what somebody changed in the port."""
    lost = [name for tree in plan.kept_in(CONVERT).glob("tree*") for name in list_edited_files(tree)]
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


def _came_of(run: Run) -> str:
    """A run in a few words."""
    why = {
        "timeout": "stopped: --timeout",
        "memory": "stopped: the machine's memory is used up",
        "steps": "ended after --steps",
        "enough": "ended: enough to compare",
    }.get(run.ended, f"exit status {run.status}" if run.status else "")
    return f"{_count(run.steps, 'step')} on {run.device}{', ' * bool(why)}{why}"


def _came_of_control(run: ControlRun) -> str:
    what = "noise and faults" if run.faults else "noise"
    return run.why or f"{_count(run.steps, 'step')} of the original with {what}"


def _notes(plan: Plan, kept: Mapping[str, Run], control: ControlRun) -> Iterator[str]:
    original, port = kept[REFERENCE], kept[NPU]
    if original.ended == "enough":
        steps, seconds = runs.ENOUGH
        yield (
            f"both runs were ended after {original.steps} steps: every curve had {steps} and "
            f"{seconds:.0f} s had passed; --steps N runs N"
        )
    if original.ended == "steps" == port.ended:
        yield f"both runs were ended after {plan.steps} steps (--steps): what the script does at its end was not run"
    yield from (*original.notes, *port.notes)
    if control.why and original.steps:
        yield f"the control run, which measures what rounding does, failed: {control.why}"


def _backend() -> str:
    backend = vnpu.detect()
    return "virtual NPU" if backend.kind is vnpu.Kind.VNPU else "NPU"


def _port_path(plan: Plan) -> str:
    """The converted script, for people."""
    path = plan.kept_in(CONVERT) / "tree"
    for number, place in enumerate(plan.list_viewed_folders()):
        if plan.script is not None and plan.script.is_relative_to(place):
            path = plan.kept_in(CONVERT) / runs.name_view_folder("tree", number) / plan.script.relative_to(place)
            break
    return str(path.relative_to(plan.folder) if path.is_relative_to(plan.folder) else path)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
