"""What is to be exported: the inputs and choices, as both processes have them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError

DTYPES = ("float32", "float16", "int64", "int32", "bool", "uint8", "float64")
NEWEST = 20  # the newest opset of both exporters of torch 2.13: torch.onnx's TorchScript one has none after it
DYNAMO_FROM = 18  # the dynamo exporter's own operators begin here; converting down is not reliable
TOLERANCE, TOLERANCE_HALF = 1e-4, 1e-2  # relative to the largest value of the output
BATCHES = (1, 3, 8)


class FinalError(TorchportError):
    """Another exporter would do no better."""


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """A tensor that the model takes. `below` bounds integers; `dynamic` are the axes that may have other sizes."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    below: int = 2
    dynamic: tuple[int, ...] = (0,)

    def name_axis(self, number: int) -> str:
        """The name of a dynamic axis."""
        return "batch" if number == 0 else f"{self.name}_{number}"


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """`model` is `package.module:factory`, called with `arguments`; `exporter` is auto, torchscript or dynamo.

    `samples` are .npz files with inputs to compare with; `assumed` lines (FILE:LINE) of which the user says that the
    Python value taken there is always the same.
    """

    model: str
    inputs: tuple[Input, ...]
    opset: int = 11
    exporter: str = "auto"
    half: bool = False
    outputs: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    allow_missing: bool = False
    allow_unexpected: bool = False
    samples: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def tolerance(self) -> float:
        """How far outputs may be apart."""
        return TOLERANCE_HALF if self.half else TOLERANCE

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Job:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        inputs = tuple(
            Input(row["name"], tuple(row["shape"]), row["dtype"], row["below"], tuple(row["dynamic"]))
            for row in value["inputs"]
        )
        words = {name: tuple(value[name]) for name in ("outputs", "samples", "assumed")}
        return cls(**{**value, **words, "inputs": inputs})


def name_weights_file(path: Path) -> Path:
    """The file that holds the weights of the model at `path`, if they are not in it."""
    return path.with_name(f"{path.name}.data")


def parse_input(text: str, number: int) -> Input:
    """`[NAME:]SIZES[:DTYPE[:BELOW]]`. Raises TorchportError."""
    words = text.split(":")
    name = f"input_{number}" if number else "input"
    if not re.fullmatch(r"\d+(,\d+)*", words[0]):
        name, words = words[0], words[1:]
    try:
        shape = tuple(int(size) for size in words[0].split(","))
        dtype = words[1] if len(words) > 1 else "float32"
        below = int(words[2]) if len(words) > 2 else 2
        if dtype not in DTYPES or min(shape) < 1 or below < 1 or len(words) > 3 or not name.isidentifier():
            raise ValueError(text)
    except (ValueError, IndexError):
        raise TorchportError(
            f"--input {text} is not [NAME:]SIZES[:DTYPE[:BELOW]]",
            hint=f"1,3,224,224 for example, or ids:1,128:int64:30522 (integers below it). Types: {', '.join(DTYPES)}.",
        ) from None
    return Input(name, shape, dtype, below)


def with_dynamic(inputs: Sequence[Input], given: Sequence[str] | None, static: bool) -> tuple[Input, ...]:
    """The inputs with the axes of `--dynamic NAME:AXES`, or with none. Raises TorchportError."""
    axes: dict[str, tuple[int, ...]] = {}
    known = {one.name: one for one in inputs}
    for text in given or ():
        name, _, numbers = text.rpartition(":")
        name = name or inputs[0].name
        try:
            axes[name] = tuple(int(number) for number in numbers.split(","))
            if max(axes[name]) >= len(known[name].shape) or min(axes[name]) < 0:
                raise ValueError(text)
        except (ValueError, KeyError):
            raise TorchportError(
                f"--dynamic {text} names no axes of an input",
                hint=f"Inputs: {', '.join(known)}. For example {inputs[0].name}:0,1.",
            ) from None
    return tuple(dataclasses.replace(one, dynamic=() if static else axes.get(one.name, one.dynamic)) for one in inputs)
