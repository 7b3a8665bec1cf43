"""An ONNX model against the PyTorch model that it is to be: onnxruntime and PyTorch on the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
import torch

from torchport.errors import TorchportError
from torchport.export.exporting import FinalError, Flat, make_sample
from torchport.export.job import BATCHES, Job

OTHER = 7  # the seed of inputs that nothing else is computed of
SHIFT = 3  # other dynamic axes are tried with so much less


def check_onnx_model(path: Path, model: Flat, job: Job) -> list[dict[str, Any]]:
    """A row for each output and batch size: how far the two are apart, relative to the largest value of PyTorch's.

    Raises TorchportError for a model that cannot be run, or that PyTorch itself does not compute the same twice.
    """
    require_contained(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise TorchportError(f"onnxruntime does not load {path.name}: {_first(error)}") from error
    taken = {one.name for one in session.get_inputs()}
    rows: list[dict[str, Any]] = []
    for number, (batch, shift) in enumerate(_cases(job)):
        given = [make_sample(one, batch, 1 + number, job.half, shift) for one in job.inputs]
        with torch.no_grad():
            wanted, again = model(*given), model(*given)
        if any(not torch.equal(a, b) and not (a != a).any() for a, b in zip(wanted, again, strict=True)):
            raise FinalError(
                f"{job.model} gives two answers to the same input: it draws random numbers in eval()",
                hint="For example functional.dropout without training=self.training.",
            )
        if number == 0:
            _require_answers(
                model, job, wanted, [make_sample(one, batch, OTHER, job.half, shift) for one in job.inputs]
            )
        feed = {one.name: tensor.numpy() for one, tensor in zip(job.inputs, given, strict=True) if one.name in taken}
        try:
            found = session.run(None, feed)
        except Exception as error:
            raise TorchportError(
                f"onnxruntime cannot run the model for {_sizes(given)}: {_first(error)}",
                hint="A size may have become a constant while tracing: --static exports for the given sizes alone.",
            ) from error
        if len(found) != len(wanted):
            raise TorchportError(f"the ONNX model has {len(found)} outputs, and PyTorch's {len(wanted)}")
        names = [value.name for value in session.get_outputs()]
        rows += [
            {"sizes": _sizes(given), **_row(name, a.numpy(), b, job.tolerance)}
            for name, a, b in zip(names, wanted, found, strict=True)
        ]
    return rows


def _require_answers(model: Flat, job: Job, wanted: Any, other: list[Any]) -> None:
    """Raise FinalError where another input changes nothing: a file that computes anything else would hold as well."""
    with torch.no_grad():
        given_other = model(*other)
    if all(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(wanted, given_other, strict=True)):
        raise FinalError(
            f"{job.model} gives the same output to every input, so that nothing can be compared",
            hint="Its weights may be zero or not finite: see `torchport checkpoint show`.",
        )


def _cases(job: Job) -> list[tuple[int | None, int]]:
    if not any(one.dynamic for one in job.inputs):
        return [(None, 0)] * len(BATCHES)  # other inputs of the same sizes
    cases: list[tuple[int | None, int]] = [(batch, 0) for batch in BATCHES]
    if any(set(one.dynamic) - {0} for one in job.inputs):
        cases.append((BATCHES[1], SHIFT))
    return cases


def _sizes(given: list[Any]) -> str:
    return " ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in given)


def _row(name: str, wanted: Any, found: Any, tolerance: float) -> dict[str, Any]:
    if wanted.shape != found.shape:
        return {
            "output": name,
            "largest": 0.0,
            "relative": float("inf"),
            "ok": False,
            "shapes": [list(wanted.shape), list(found.shape)],
        }
    a, b = wanted.astype(numpy.float64), found.astype(numpy.float64)
    finite = numpy.isfinite(a)
    same = numpy.array_equal(a[~finite], b[~finite], equal_nan=True)
    largest = float(numpy.abs(a[finite]).max(initial=0.0))
    apart = float(numpy.abs(a[finite] - b[finite]).max(initial=0.0)) if same else float("inf")
    relative = apart / largest if largest else apart
    return {"output": name, "largest": largest, "relative": relative, "ok": bool(same and relative <= tolerance)}


def require_contained(path: Path) -> None:
    """Raise TorchportError for a model whose weights are in other files: one may name any file of this machine."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise TorchportError(f"{path} is no ONNX model: {_first(error)}") from error
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            raise TorchportError(
                f"{path} takes the weights {tensor.name[:80]} from another file, {where[:80]!r}, which is not read",
                hint="torchport export writes models of one file.",
            )


def _first(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:400]
