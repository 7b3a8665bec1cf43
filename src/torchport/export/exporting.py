"""The two exporters of torch.onnx, the one that works, and its graph cleaned."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

from torchport.errors import TorchportError
from torchport.export import external
from torchport.export.cases import Case, describe_sizes, make_inputs
from torchport.export.job import DYNAMO_FROM, NEWEST, FinalError, Job, name_weights_file
from torchport.export.loading import OURS, TORCH, locate_error
from torchport.export.older_opsets import plain_for

LARGEST = 2_000_000_000  # bytes of weights: a model in one file ends at 2 GiB
STEP = "Failed to export the model"
# Words of torch.export's exceptions (torch 2.13), and the same in plain words.
DEPENDENT = (
    ("Could not guard on data-dependent expression", "the way through the model hangs on what the inputs contain"),
    ("Could not extract specialized integer from data-dependent", "a size hangs on what the inputs contain"),
    ("Constraints violated", "a size that is to be dynamic is a constant in the model"),
)


class Flat(torch.nn.Module):  # type: ignore[misc]
    """The model with a tuple of tensors for an output, whatever it nests them in."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(names) if has_parameters(model, names) else None
        self.outputs: tuple[str, ...] = ()
        self.left_out: tuple[str, ...] = ()  # outputs that are no tensors, with their types

    def forward(self, *given: Any) -> tuple[Any, ...]:
        made = self.model(**dict(zip(self.names, given, strict=True))) if self.names else self.model(*given)
        left_out: list[str] = []
        found = list(iter_named_tensors("", made, left_out))
        self.left_out = tuple(left_out)
        self.outputs = tuple(name for name, _ in found)
        return tuple(tensor for _, tensor in found)


def has_parameters(model: Any, names: Sequence[str]) -> bool:
    """Whether forward has parameters of all these names."""
    return set(names) <= set(inspect.signature(model.forward).parameters)


def iter_named_tensors(name: str, value: Any, left_out: list[str]) -> Iterator[tuple[str, Any]]:
    """The tensors in an output, each with a name from its keys and places. Objects go into `left_out`."""
    if isinstance(value, torch.Tensor):
        yield name or "output", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from iter_named_tensors(f"{name}_{key}" if name else str(key), item, left_out)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from iter_named_tensors(f"{name or 'output'}_{number}" if len(value) > 1 else name, item, left_out)
    elif value is not None:
        left_out.append(f"{name or 'output'} ({type(value).__name__})")


def choose_exporters(job: Job) -> tuple[list[str], dict[str, str]]:
    """The exporters to try in their order, and why another is not."""
    refused: dict[str, str] = {}
    if job.opset < DYNAMO_FROM:
        refused["dynamo"] = f"it writes opset {DYNAMO_FROM} and newer"
    if job.opset > NEWEST:
        refused["torchscript"] = f"it writes opset {NEWEST} and older"
    asked = ("torchscript", "dynamo") if job.exporter == "auto" else (job.exporter,)
    return [name for name in asked if name not in refused], {
        name: why for name, why in refused.items() if name in asked
    }


def is_large(model: Flat) -> bool:
    """Whether the weights do not fit into a model of one file."""
    return bool(sum(t.numel() * t.element_size() for t in model.state_dict().values()) > LARGEST)


def export_onnx(exporter: str, model: Flat, job: Job, target: Path, large: bool = False) -> dict[str, Any]:
    """Write the model to `target`, `large` ones with the weights beside it; what its graph has.

    Raises TorchportError with the line of the model and the sizes of the inputs.
    """
    given = _make_given(exporter, job)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # Of the TracerWarnings `frozen` knows more.
            warnings.simplefilter("ignore")
            {"torchscript": _torchscript, "dynamo": _dynamo}[exporter](model, job, given, target, large)
        return _clean(target, model if large and exporter == "torchscript" else None)
    except TorchportError:
        raise
    except OSError as error:
        raise FinalError(
            f"the model cannot be written: {error.strerror or error}",
            hint="Give a place that can be written and has room for the model twice.",
        ) from error
    except Exception as error:
        raise TorchportError(_describe(error, model, given)[:900]) from error


def _make_given(exporter: str, job: Job) -> tuple[Any, ...]:
    # torch.export takes a size of 1 for a constant
    batch = 2 if exporter == "dynamo" and any(one.dynamic and one.shape[0] == 1 for one in job.inputs) else None
    return tuple(make_inputs(Case(0, batch), job))


def _describe(error: BaseException, model: Flat, given: tuple[Any, ...]) -> str:
    """Say in one line why an exporter failed, with the line of the model and the inputs."""
    whole = str(error).strip()
    cause = error.__cause__ or error.__context__
    if cause is not None and STEP in whole:  # the dynamo exporter tells of its steps first
        error, whole = cause, f"{str(cause).strip()}\n{whole}"
    text = whole.partition("\n")[0].partition("  [Caused by")[0]
    text = next((said for words, said in DEPENDENT if words in whole), text)
    operator = re.search(r"operator 'aten::(\w+)'|ONNX export of (?:operator )?(\w+)", text)
    place = (
        _find_operator(f"aten::{operator.group(1) or operator.group(2)}", model, given) if operator else ""
    ) or _find_line(whole)
    return f"{place or locate_error(error)}{type(error).__name__}: {text} (inputs of {describe_sizes(given)})"


def _find_line(text: str) -> str:
    """The last line that a message names and that is not torch's; "" if there is none."""
    named = [*re.findall(r"# (/\S+\.py:\d+)", text)]
    named += [f"{file}:{line}" for file, line in re.findall(r'File "([^"]+)", line (\d+)', text)]
    outside = [one for one in named if not one.startswith((TORCH, OURS))]
    return f"{outside[-1]}: " if outside else ""


def _find_operator(kind: str, model: Flat, given: tuple[Any, ...]) -> str:
    """The line of the model that calls an operator, by a trace; "" if none is found."""
    with torch.no_grad():
        graph = torch.jit._get_trace_graph(model, given)[0]
    for node in graph.nodes():
        if node.kind() == kind:
            for file, line in re.findall(r"^(/.*?)\((\d+)\):", node.sourceRange(), re.MULTILINE):
                if not file.startswith(TORCH):
                    return f"{file}:{line}: "
    return ""


def _names(model: Flat, job: Job, given: tuple[Any, ...]) -> list[str]:
    model(*given)
    if job.outputs and len(job.outputs) != len(model.outputs):
        raise TorchportError(f"--output-names has {len(job.outputs)} names, and the model {len(model.outputs)} outputs")
    taken = {one.name for one in job.inputs}
    twice = [name for name in job.outputs if name in taken or job.outputs.count(name) > 1]
    if twice:
        raise TorchportError(f"--output-names has {twice[0]} twice, or as an input has it")
    # diffusers' UNet2DConditionModel takes `sample` and gives `sample`; in a graph a name is one value's.
    return list(job.outputs or (f"out_{name}" if name in taken else name for name in model.outputs))


def _write(model: Flat, job: Job, given: tuple[Any, ...], target: Path, **options: Any) -> None:
    torch.onnx.export(
        model,
        given,
        str(target),
        opset_version=job.opset,
        input_names=[one.name for one in job.inputs],
        output_names=_names(model, job, given),
        **options,
    )


def _torchscript(model: Flat, job: Job, given: tuple[Any, ...], target: Path, large: bool) -> None:
    axes = {one.name: {axis: one.name_axis(axis) for axis in one.dynamic} for one in job.inputs if one.dynamic}
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that ONNX has no name for
    # Weights that are not in the graph are not folded into copies, and the graph stays below 2 GiB.
    apart: dict[str, Any] = {"export_params": False, "do_constant_folding": False} if large else {}
    with plain_for(job.opset):
        _write(model, job, given, target, dynamo=False, dynamic_axes=axes, **apart)


def _dynamo(model: Flat, job: Job, given: tuple[Any, ...], target: Path, large: bool) -> None:
    shapes = tuple(dict.fromkeys(one.dynamic, torch.export.Dim.DYNAMIC) for one in job.inputs)
    _write(model, job, given, target, dynamo=True, dynamic_shapes=(shapes,), external_data=large, verbose=False)


def _clean(target: Path, apart: Flat | None) -> dict[str, Any]:
    """Take out what computes nothing, check the model, and say what it has. Raises what onnx.checker does.

    The weights of `apart` are not in the model and go into a file beside it.
    """
    model = onnx.load(str(target), load_external_data=False)
    weights = apart.state_dict() if apart is not None else {}
    if apart is not None:
        external.move_weights_out(model, weights)
    before = len(model.graph.node)
    if not any(one.g.node or one.graphs for node in model.graph.node for one in node.attribute):
        _drop_identities(model.graph)
        _drop_unused(model.graph)
    model.producer_name = "torchport"
    if apart is not None:
        external.write_weights(model, weights, target)
    target.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(target))
    operators: dict[str, int] = {}
    for node in model.graph.node:
        name = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        operators[name] = operators.get(name, 0) + 1
    opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    return {
        "nodes": len(model.graph.node),
        "removed": before - len(model.graph.node),
        "operators": operators,
        "opset": opset,
        "weights_file": name_weights_file(target).exists(),
    }


def _drop_identities(graph: Any) -> None:
    """Readers of an Identity read its input, in a graph without subgraphs. One that makes an output stays."""
    outputs = {value.name for value in graph.output}
    same: dict[str, str] = {}
    for node in list(graph.node):
        for index, name in enumerate(node.input):
            node.input[index] = same.get(name, name)
        if node.op_type == "Identity" and node.domain == "" and node.output[0] not in outputs:
            same[node.output[0]] = node.input[0]
            graph.node.remove(node)


def _drop_unused(graph: Any) -> None:
    """Nodes and weights that no output needs, in a graph without subgraphs."""
    needed = {value.name for value in graph.output}
    for node in reversed(list(graph.node)):
        if needed.isdisjoint(node.output):
            graph.node.remove(node)
        else:
            needed.update(node.input)
    for weight in [one for one in graph.initializer if one.name not in needed]:
        graph.initializer.remove(weight)
