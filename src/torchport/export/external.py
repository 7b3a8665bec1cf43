"""Weights beside an ONNX model, in a file of their own: a protobuf ends at 2 GiB, and a model may have more."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

from torchport.errors import TorchportError
from torchport.export.job import name_weights_file
from torchport.export.loading import first_line

ALIGNMENT = 4096  # of a weight in the file, so that onnxruntime can map it


def move_weights_out(model: Any, weights: Mapping[str, Any]) -> None:
    """Make initializers of the inputs that are weights, without their values: `write_weights` puts these into a file.

    The model is as torch.onnx.export(export_params=False) writes it.
    """
    for value in [one for one in model.graph.input if one.name in weights]:
        model.graph.input.remove(value)
        held = model.graph.initializer.add()
        held.name, held.data_type = value.name, value.type.tensor_type.elem_type
        held.dims.extend(weights[value.name].shape)
        held.data_location = onnx.TensorProto.EXTERNAL


def write_weights(model: Any, weights: Mapping[str, Any], target: Path) -> None:
    """Write the weights that the model has without their values, one after the other, and note where each is."""
    with open(name_weights_file(target), "wb") as stream:
        for held in _iter_external(model):
            stream.write(bytes(-stream.tell() % ALIGNMENT))
            array = weights[held.name].detach().contiguous().numpy()
            place = {"location": name_weights_file(target).name, "offset": stream.tell(), "length": array.nbytes}
            stream.write(memoryview(array).cast("B") if array.nbytes else b"")
            del held.external_data[:]
            for key, value in place.items():
                entry = held.external_data.add()
                entry.key, entry.value = key, str(value)
        stream.flush()
        os.fsync(stream.fileno())


def require_contained(path: Path) -> None:
    """Raise TorchportError for a model with weights in other files than the one of its name beside it.

    A model may name any file of this machine.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise TorchportError(f"{path} is no ONNX model: {first_line(error)}") from error
    beside = name_weights_file(path)
    for tensor in _iter_external(model):
        place = {entry.key: entry.value for entry in tensor.external_data}
        where = place.get("location", "")
        if where != beside.name or beside.is_symlink() or not beside.is_file():
            raise TorchportError(
                f"{path} takes the weights {tensor.name[:80]} from another file, {where[:80]!r}, which is not read",
                hint=f"torchport export writes large weights into {beside.name}, and reads no other.",
            )
        try:
            offset, length = int(place.get("offset", "0")), int(place.get("length", "0"))
        except ValueError:
            offset, length = -1, 0
        if not 0 <= offset <= offset + length <= beside.stat().st_size:
            raise TorchportError(f"{beside} ends inside the weights {tensor.name[:80]}")


def _iter_external(model: Any) -> Iterator[Any]:
    """The weights in other files, those in subgraphs and attributes among them."""
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        tensors = list(graph.initializer)
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [*attribute.graphs, attribute.g] if attribute.graphs or attribute.HasField("g") else []
                tensors += [*attribute.tensors, attribute.t]
        yield from (one for one in tensors if one.data_location == onnx.TensorProto.EXTERNAL)
