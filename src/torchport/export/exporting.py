"""The two exporters of torch.onnx, the one that works, and its graph cleaned."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

from torchport.errors import TorchportError
from torchport.export.job import DYNAMO_FROM, NEWEST, Input, Job
from torchport.export.loading import locate_error
from torchport.export.older_opsets import plain_for

LARGEST = 2_000_000_000  # bytes of weights: a model in one file ends at 2 GiB


class FinalError(TorchportError):
    """Another exporter would do no better."""


class Flat(torch.nn.Module):  # type: ignore[misc]
    """The model with a tuple of tensors for an output, whatever it nests them in."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(names) if has_parameters(model, names) else None
        self.outputs: tuple[str, ...] = ()

    def forward(self, *given: Any) -> tuple[Any, ...]:
        made = self.model(**dict(zip(self.names, given, strict=True))) if self.names else self.model(*given)
        found = list(iter_named_tensors("", made))
        self.outputs = tuple(name for name, _ in found)
        return tuple(tensor for _, tensor in found)


def has_parameters(model: Any, names: Sequence[str]) -> bool:
    """Whether forward has parameters of all these names."""
    return set(names) <= set(inspect.signature(model.forward).parameters)


def iter_named_tensors(name: str, value: Any) -> Any:
    """The tensors in an output, each with a name from its keys and places."""
    if isinstance(value, torch.Tensor):
        yield name or "output", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from iter_named_tensors(f"{name}_{key}" if name else str(key), item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from iter_named_tensors(f"{name or 'output'}_{number}" if len(value) > 1 else name, item)


def make_sample(one: Input, batch: int | None, seed: int, half: bool, shift: int = 0) -> Any:
    """A tensor for the input; `batch` replaces a dynamic first size, and `shift` is taken off other dynamic axes."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [
        batch
        if axis == 0 and axis in one.dynamic and batch
        else max(1, size - shift)
        if axis in one.dynamic and axis
        else size
        for axis, size in enumerate(one.shape)
    ]
    dtype = getattr(torch, one.dtype)
    if dtype.is_floating_point:
        made = torch.randn(sizes, generator=generator).to(dtype)
        return made.half() if half and dtype == torch.float32 else made
    return torch.randint(0, one.below, sizes, generator=generator).to(dtype)


def choose_exporters(model: Flat, job: Job) -> tuple[list[str], dict[str, str]]:
    """The exporters to try in their order, and why another is not. Raises TorchportError for a model too large."""
    size = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    if size > LARGEST:
        raise TorchportError(
            f"the weights have {size / 1e9:.1f} GB, and an ONNX model in one file ends at 2 GB",
            hint="--fp16 halves them.",
        )
    refused: dict[str, str] = {}
    if job.opset < DYNAMO_FROM:
        refused["dynamo"] = f"it writes opset {DYNAMO_FROM} and newer"
    if job.opset > NEWEST:
        refused["torchscript"] = f"it writes opset {NEWEST} and older"
    asked = ("torchscript", "dynamo") if job.exporter == "auto" else (job.exporter,)
    return [name for name in asked if name not in refused], {
        name: why for name, why in refused.items() if name in asked
    }


def export_onnx(exporter: str, model: Flat, job: Job, target: Path) -> dict[str, Any]:
    """Write the model to `target`; what its graph has. Raises TorchportError."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            {"torchscript": _torchscript, "dynamo": _dynamo}[exporter](model, job, target)
        return _clean(target)
    except TorchportError:
        raise
    except OSError as error:
        raise FinalError(
            f"the model cannot be written: {error.strerror or error}",
            hint="Give a place that can be written and has room for the model twice.",
        ) from error
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise TorchportError(f"{locate_error(error)}{type(error).__name__}: {text}"[:600]) from error


def _names(model: Flat, job: Job, given: tuple[Any, ...]) -> list[str]:
    model(*given)
    if job.outputs and len(job.outputs) != len(model.outputs):
        raise TorchportError(f"--output-names has {len(job.outputs)} names, and the model {len(model.outputs)} outputs")
    return list(job.outputs or model.outputs)


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


def _torchscript(model: Flat, job: Job, target: Path) -> None:
    axes = {one.name: {axis: one.name_axis(axis) for axis in one.dynamic} for one in job.inputs if one.dynamic}
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that ONNX has no name for
    given = tuple(make_sample(one, None, 0, job.half) for one in job.inputs)
    with plain_for(job.opset):
        _write(model, job, given, target, dynamo=False, dynamic_axes=axes)


def _dynamo(model: Flat, job: Job, target: Path) -> None:
    # torch.export takes a size of 1 for a constant
    batch = 2 if any(one.dynamic and one.shape[0] == 1 for one in job.inputs) else None
    given = tuple(make_sample(one, batch, 0, job.half) for one in job.inputs)
    shapes = tuple(dict.fromkeys(one.dynamic, torch.export.Dim.DYNAMIC) for one in job.inputs)
    _write(model, job, given, target, dynamo=True, dynamic_shapes=(shapes,), external_data=False, verbose=False)


def _clean(target: Path) -> dict[str, Any]:
    """Take out what computes nothing, check the model, and say what it has. Raises what onnx.checker does."""
    model = onnx.load(str(target), load_external_data=False)
    before = len(model.graph.node)
    if not any(one.g.node or one.graphs for node in model.graph.node for one in node.attribute):
        _drop_identities(model.graph)
        _drop_unused(model.graph)
    model.producer_name = "torchport"
    onnx.checker.check_model(model)
    target.write_bytes(model.SerializeToString())
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
