"""An ONNX model against the PyTorch model that it is to be: onnxruntime and PyTorch on the same inputs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import torch

from torchport.errors import TorchportError
from torchport.export import cases, external
from torchport.export.cases import Case, describe_sizes, make_inputs
from torchport.export.exporting import Flat
from torchport.export.frozen import Forced, list_other_values, trace_conversions
from torchport.export.job import FinalError, Job
from torchport.export.loading import first_line, locate_error
from torchport.export.places import Place, Places

OTHER = 7  # the seed of inputs that nothing else is computed of
MOVED = 1e-6  # relative: an answer that changes with inputs and weights moved by so much is not determined by them
KINDS_FROM, LENGTHS_FROM = 101, 201  # numbers of runs
MOST_PROBED = 40  # lines of which it is seen whether their value matters
UNDETERMINED = 3  # a difference is the model's own up to this many times its change when moved


@dataclasses.dataclass(slots=True)
class Run:
    """PyTorch's answer to a case. `moved` is the answer to inputs and weights moved by a millionth."""

    number: int
    case: Case
    given: list[Any]
    wanted: list[Any]
    moved: list[Any] | None = None


@dataclasses.dataclass(slots=True)
class Checked:
    """`rows`: by output and case how far the two are apart. `left_out`: cases that say nothing, with the reason.

    `places`: where the model takes Python values from tensors. `unseen`: why they were not looked for, or "".
    """

    rows: list[dict[str, Any]]
    left_out: list[dict[str, str]]
    places: list[dict[str, Any]]
    unseen: str = ""

    @property
    def word(self) -> str:
        """`holds`, `does not hold` or `undecided`."""
        if not all(row["ok"] for row in self.rows):
            return "does not hold"
        return "undecided" if self.unseen or any(one["state"] == "open" for one in self.places) else "holds"

    def to_json(self) -> dict[str, Any]:
        """For the answer of the child."""
        return {**dataclasses.asdict(self), "word": self.word}


def check_onnx_model(
    path: Path, model: Flat, job: Job, release: Callable[[], None] | None = None, *, traced: bool = True
) -> Checked:
    """Compare the file with the model: in other sizes, and in other contents if Python values hang on these.

    `release` is called when PyTorch has computed all that it has to. `traced`: whether a trace made the file or may
    have; else its exporter refuses what a trace would freeze. Raises TorchportError for a model that cannot be run, or
    that PyTorch itself does not compute the same twice.
    """
    external.require_contained(path)
    places, unseen = Places(), ""
    given = tuple(make_inputs(Case(0), job))
    try:
        places.add(0, given, *trace_conversions(model, given))
    except Exception as error:
        if traced:
            unseen = f"the model cannot be traced: {locate_error(error)}{first_line(error)}"
    runs, left_out = _compute(model, job, places, [*cases.list_sizes(job), *_list_samples(job)], required=True)
    _probe(model, given, places, [one for one in places if one.data or one.has_other_sizes])
    if places.has_open_contents(job.assumed):
        _extend(runs, left_out, _compute(model, job, places, cases.list_kinds(), first=KINDS_FROM))
    hanging = [one for one in places if one.has_other_sizes and one.matters is not False and not one.guards]
    if hanging:
        constants = {number for place in hanging for number in place.constants}
        tried = cases.list_lengths(job, constants)
        _extend(runs, left_out, _compute(model, job, places, tried, first=LENGTHS_FROM))
    _require_answers(model, job, runs)
    if release is not None:
        release()
    session = _load(path, large=release is not None)
    rows: list[dict[str, Any]] = []
    held = [0]
    for run in runs:
        made, why = _compare(session, run, job)
        if why:
            left_out.append(_describe(run, why))
            continue
        held += [run.number] if all(row["ok"] for row in made) else []
        changed = [] if held[-1] == run.number or not traced else places.find_changed(run.number)
        frozen = [
            f"{one.where} took {one.show_values(0)} in the trace, {one.show_values(run.number)} here" for one in changed
        ]
        rows += [row if row["ok"] or not frozen else {**row, "frozen": frozen} for row in made]
    return Checked(rows, left_out, places.to_json(held, job.assumed) if traced else [], unseen)


def _probe(model: Flat, given: tuple[Any, ...], places: Places, asked: list[Place]) -> None:
    """See which values matter: by traces in which one of them is another."""
    for place in asked[:MOST_PROBED]:
        if place.guards or 0 not in place.values:
            continue
        for other in list_other_values(place.values[0][0]):
            try:
                graph = trace_conversions(model, given, Forced(place.where, place.what, other))[1]
                place.matters = graph != places.get_graph(0)
            except Exception:  # if a truth value makes the model raise, it is a check
                place.matters = not isinstance(other, bool)
            if place.matters:
                break


def _extend(runs: list[Run], left_out: list[dict[str, str]], more: tuple[list[Run], list[dict[str, str]]]) -> None:
    runs += more[0]
    left_out += more[1]


def _list_samples(job: Job) -> list[Case]:
    return [Case(0, sample=path) for path in job.samples]


def _compute(
    model: Flat, job: Job, places: Places, tried: list[Case], *, first: int = 1, required: bool = False
) -> tuple[list[Run], list[dict[str, str]]]:
    """PyTorch's answers, and what it does not take. Cases that are `required` are those that the user has asked for."""
    runs: list[Run] = []
    left_out: list[dict[str, str]] = []
    watching = not all(one.guards for one in places)
    for number, case in enumerate(tried, first):
        given = make_inputs(case, job)
        run = Run(number, case, given, [])
        try:
            with torch.no_grad():
                run.wanted, again = list(model(*given)), model(*given)
            if watching:
                places.add(number, given, *trace_conversions(model, tuple(given)))
        except Exception as error:
            why = f"{locate_error(error)}{type(error).__name__}: {first_line(error)}"
            if required:
                raise FinalError(
                    f"PyTorch itself cannot run inputs of {describe_sizes(given)}: {why}",
                    hint="Batches of 1, 3 and 8 are tried. --static exports for the given sizes alone.",
                ) from error
            left_out.append(_describe(run, f"PyTorch itself cannot run them: {why}"))
            continue
        if any(not torch.equal(a, b) and not (a != a).any() for a, b in zip(run.wanted, again, strict=True)):
            raise FinalError(
                f"{job.model} gives two answers to the same input: it draws random numbers in eval()",
                hint="For example functional.dropout without training=self.training.",
            )
        if case.kind:
            run.moved = _move(model, given)
        runs.append(run)
    return runs, left_out


def _move(model: Flat, given: list[Any]) -> list[Any] | None:
    """The answer to inputs moved by a millionth, by weights moved so."""
    generator = torch.Generator().manual_seed(OTHER)

    def move(tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor
        return tensor * (1 + MOVED * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype)

    weights = {name: move(value) for name, value in model.named_parameters()}
    try:
        with torch.no_grad():
            return list(torch.func.functional_call(model, weights, tuple(move(tensor) for tensor in given)))
    except Exception:  # what a millionth makes impossible is not determined either, and says so by its shape
        return None


def _require_answers(model: Flat, job: Job, runs: list[Run]) -> None:
    """Raise FinalError where another input changes nothing: a file that computes anything else would hold as well."""
    if not any(tensor.numel() for run in runs for tensor in run.wanted):
        raise FinalError(
            f"{job.model} gives empty outputs to all inputs that were tried, so that nothing can be compared",
            hint="Give inputs of your own for which it finds something: --sample FILE.npz.",
        )
    for run in runs:
        other = dataclasses.replace(run.case, seed=OTHER, sample="")
        with torch.no_grad():
            again = model(*make_inputs(other, job))
        if any(not _equal(a, b) for a, b in zip(run.wanted, again, strict=True)):
            return
    raise FinalError(
        f"{job.model} gives the same output to every input, so that nothing can be compared",
        hint="Its weights may be zero or not finite: see `torchport checkpoint show`. If it needs inputs of a certain "
        "kind, give some: --sample FILE.npz.",
    )


def _equal(a: Any, b: Any) -> bool:
    return bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def _load(path: Path, large: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is raised, too
    options.intra_op_num_threads = torch.get_num_threads()
    if large:  # its weights stay in the file that is mapped: no copies in another order, no arena
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise TorchportError(f"onnxruntime does not load {path.name}: {first_line(error)}") from error


def _compare(session: Any, run: Run, job: Job) -> tuple[list[dict[str, Any]], str]:
    """The rows of a run; or the reason for which the run says nothing."""
    taken = {one.name: one.shape for one in session.get_inputs()}
    head = {"sizes": describe_sizes(run.given), "inputs": run.case.name_inputs(), "contents": bool(run.case.kind)}
    feed = {one.name: tensor.numpy() for one, tensor in zip(job.inputs, run.given, strict=True) if one.name in taken}
    lost = [name for name in taken if name not in feed]
    if lost:
        raise TorchportError(
            f"the ONNX model wants the inputs {', '.join(taken)}, and {', '.join(lost)} is none of --input's",
            hint="--input NAME:SIZES names them.",
        )
    try:
        found = session.run(None, feed)
    except Exception as error:
        row = {"output": "", "largest": 0.0, "relative": None, "ok": False, "error": f"onnxruntime: {_status(error)}"}
        return [{**head, **row}], ""
    if len(found) != len(run.wanted):
        raise TorchportError(f"the ONNX model has {len(found)} outputs, and PyTorch's {len(run.wanted)}")
    names = [value.name for value in session.get_outputs()]
    rows = [
        {**head, **compare_outputs(name, a.numpy(), b, job.tolerance)}
        for name, a, b in zip(names, run.wanted, found, strict=True)
    ]
    if run.case.kind and not all(row["ok"] for row in rows):
        return rows, _find_excuse(run, found, job.tolerance)
    return rows, ""


def _find_excuse(run: Run, found: list[Any], tolerance: float) -> str:
    """Why a difference in special contents is none of the file's; "" where it is."""
    if any(not bool(torch.isfinite(a).all()) for a in run.wanted if a.is_floating_point()):
        return "PyTorch's own answer to them is not finite"
    if run.moved is None or any(a.shape != b.shape for a, b in zip(run.wanted, run.moved, strict=True)):
        return "PyTorch's own answer has another shape if inputs and weights move by a millionth"
    for wanted, moved, other in zip(run.wanted, run.moved, found, strict=True):
        if tuple(wanted.shape) != other.shape:
            return ""
        own = compare_outputs("", wanted.numpy(), moved.numpy(), tolerance)["relative"]
        if own is None or compare_outputs("", wanted.numpy(), other, max(tolerance, UNDETERMINED * own))["ok"]:
            continue
        return ""
    return "PyTorch's own answer changes as much if inputs and weights move by a millionth"


def _describe(run: Run, why: str) -> dict[str, str]:
    return {"sizes": describe_sizes(run.given), "inputs": run.case.name_inputs(), "why": why}


def compare_outputs(name: str, wanted: Any, found: Any, tolerance: float) -> dict[str, Any]:
    """How far two arrays are apart, relative to the largest value of `wanted`; None where they cannot be compared."""
    row: dict[str, Any] = {"output": name, "largest": 0.0, "relative": None, "ok": False}
    if wanted.shape != found.shape:
        return {**row, "shapes": [list(wanted.shape), list(found.shape)]}
    a, b = wanted.astype(numpy.float64), found.astype(numpy.float64)
    finite = numpy.isfinite(a)
    if not numpy.array_equal(a[~finite], b[~finite], equal_nan=True) or not numpy.isfinite(b[finite]).all():
        return {**row, "error": "not finite in the same places"}
    largest = float(numpy.abs(a[finite]).max(initial=0.0))
    apart = float(numpy.abs(a[finite] - b[finite]).max(initial=0.0))
    relative = apart / largest if largest else apart
    return {**row, "largest": largest, "relative": relative, "ok": relative <= tolerance}


def _status(error: BaseException) -> str:
    """The sentence of onnxruntime, without its own source lines."""
    node = re.search(r"running (\w+ node\. Name:'[^']*')", str(error))
    words = first_line(error).rpartition("Status Message: ")[2]
    words = re.sub(r"^/\S+:\d+ .*?\) (?=[A-Za-z])", "", words)
    return f"{node.group(1).replace('. Name:', ' ')}: {words}" if node else words
