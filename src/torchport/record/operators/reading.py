"""The operators of a recording, for whoever judges them. Needs h5py and numpy; no torch.

recorded = Operators.read("npu/")
for process in recorded.processes:              # ranks in order
    for number in process.steps:                # the steps that are whole
        with process.step(number) as step:
            for call in step.calls():
                call.name, call.overload, call.phase, call.module, call.arguments
                for tensor in (*call.inputs, *call.outputs):
                    if tensor is not None:      # undefined, or an optional one that was not given
                        tensor.shape, tensor.dtype, tensor.statistics, tensor.values()
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

from torchport.errors import TorchportError
from torchport.record.operators import layout
from torchport.record.operators.step_file import StepFile, make_damage_error
from torchport.record.operators.tables import Measured
from torchport.record.recording import Recording

_FILE = re.compile(r"operators/(rank\d+|process-\d+)/(\d{6}|rest)\.h5")


class Tensor:
    """A tensor as one call saw it. The same `index` in a step: the same tensor with the same content."""

    def __init__(self, step: Step, index: int, content: int | None = None) -> None:
        """`content`: row of `contents` that it has where its memory was written over (`Change`)."""
        self._step = step
        self.index = index
        self._row = step.file.tables["tensors"][index]
        self._changed = content

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return self._dims(0)

    @property
    def stride(self) -> tuple[int, ...]:
        """Its strides, in elements."""
        return self._dims(int(self._row["rank"]))

    def _dims(self, skip: int) -> tuple[int, ...]:
        first, rank = int(self._row["dims"]) + skip, int(self._row["rank"])
        return tuple(int(size) for size in self._step.file.tables["dims"][first : first + rank])

    @property
    def dtype(self) -> str:
        """As torch names it, without `torch.`: "float32"."""
        return self._text("dtype")

    @property
    def device(self) -> str:
        """Such as "cpu" or "npu:0"."""
        return self._text("device")

    @property
    def format(self) -> str:
        """The format in which the device lays it out ("ND", "NC1HWC0"), "" where it has none of its own."""
        return self._text("format")

    @property
    def name(self) -> str:
        """What the user's modules call the parameter or buffer; "" for others."""
        return self._text("name")

    @property
    def reason(self) -> str:
        """Why it was not measured, or its content not kept; "" where nothing is missing."""
        return self._text("reason")

    def _text(self, field: str) -> str:
        return self._step.file.get_line(int(self._row[field]))

    @property
    def storage(self) -> int:
        """The same number in one step: the same storage."""
        return int(self._row["storage"])

    @property
    def version(self) -> int:
        """How often its storage was written before."""
        return int(self._row["version"])

    @property
    def offset(self) -> int:
        """Where in its storage it begins, in elements."""
        return int(self._row["offset"])

    @property
    def elements(self) -> int:
        """How many there are."""
        return int(self._row["elements"])

    @property
    def requires_grad(self) -> bool:
        """Whether autograd followed it."""
        return bool(self._row["flags"] & layout.REQUIRES_GRAD)

    @property
    def statistics(self) -> Measured | None:
        """None where it was not measured, or is not what was measured any more."""
        row = self._row
        if not row["flags"] & layout.MEASURED or self._changed is not None:
            return None
        names = ("minimum", "maximum", "mean", "l2", "nans", "infinities", "zeros", "checksum")
        return Measured(*(row[name].item() for name in names))

    @property
    def has_content(self) -> bool:
        """Whether its content was kept."""
        return self.content >= 0

    @property
    def content(self) -> int:
        """The same number in one step: the same bytes. -1 where they were not kept."""
        return int(self._row["content"]) if self._changed is None else self._changed

    def shares_bytes(self, other: Tensor) -> bool:
        """Whether it is another view of the same bytes."""
        names = ("storage", "version", "content")
        return all(int(self._row[name]) == int(other._row[name]) for name in names)

    def bits(self) -> Any:
        """Its elements as numpy reads their bits: bfloat16 as uint16, float8 as uint8, complex32 as uint32. None where
        its content was not kept. Read-only, with its own strides where they lie without gaps, else row-major."""
        if not self.has_content:
            return None
        kind = layout.DTYPES.get(self.dtype)
        if kind is None:
            raise make_damage_error(self._step.file.path, f"tensor {self.index} has the unknown dtype {self.dtype!r}")
        data = self._step.file.read_content(self.content)
        return _arranged(self._step.file.path, self, data.view(kind.bits), bool(self._row["flags"] & layout.ROW_MAJOR))

    def values(self) -> Any:
        """Its elements as numpy numbers: bfloat16 as float32, whose upper half it is; others as `bits`."""
        bits = self.bits()
        if bits is None or self.dtype != "bfloat16":
            return bits
        return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


@dataclass(frozen=True, slots=True)
class Call:
    """One operator's call.

    `name` is torch's with its namespace ("aten::add"), `phase` one of `layout.PHASES`, `module` the qualified name of
    the module that ran ("" where none did, "." for the outermost), in a backward pass that of the forward call;
    `function` and `source` the user's function and line; `sequence` autograd's number, the same in an operator's
    forward and backward calls (-1: none), `node` the backward node that called it. `arguments` has a value for each
    argument of the schema (`docs/recordings.md`): {"t": i} stands for `inputs[i]`; `results` likewise for `outputs`.
    `written` is what arguments held after the call that it wrote and gave back in no result: the tensors of
    `_foreach_add_`, the running statistics of a batch norm.
    """

    index: int
    name: str
    overload: str
    phase: str
    module: str
    function: str
    source: str
    sequence: int
    thread: int
    node: str
    arguments: list[Any]
    results: list[Any]
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    written: tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Memory that nobody wrote as far as is recorded, and that was another behind the call of the number `call` than
    behind `after` (-1: than before the first). `before` and `now` are the same tensor; `by` is one that was made since
    in the same memory, None where none is known. A call behind `call` was given `now`; `call` itself was given
    either."""

    call: int
    after: int
    before: Tensor
    now: Tensor
    by: Tensor | None


class Step:
    """One step of one process, open until the end of the `with` block."""

    def __init__(self, path: Path) -> None:
        self.file = StepFile(path)

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its file."""
        self.file.close()

    @property
    def about(self) -> Mapping[str, Any]:
        """How it was recorded: level, recorder ("hook", "mode"), filters, what computes."""
        return self.file.about

    def __len__(self) -> int:
        return len(self.file.tables["calls"])

    def calls(self) -> Iterator[Call]:
        """In the order in which they began."""
        for index in range(len(self)):
            yield self.call(index)

    def call(self, index: int, *, changed: bool = False) -> Call:
        """The call of that number; with `changed` the inputs are what they were behind it (`Change`)."""
        row, line = self.file.tables["calls"][index], self.file.get_line
        texts = {name: line(int(row[name])) for name in ("overload", "module", "function", "source", "node")}
        return Call(
            index=index,
            name=line(int(row["operator"])),
            phase=layout.PHASES[int(row["phase"])],
            sequence=int(row["sequence"]),
            thread=int(row["thread"]),
            arguments=self._json(index, "arguments", int(row["arguments"])),
            results=self._json(index, "results", int(row["results"])),
            inputs=self._given(index + changed, self._tensors(int(row["inputs"]), int(row["input_count"]))),
            outputs=self._tensors(int(row["outputs"]), int(row["output_count"])),
            written=self._tensors(int(row["outputs"]) + int(row["output_count"]), int(row["written_count"])),
            **texts,
        )

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Memory that was written over, in the order in which it was found."""
        found: list[Change] = []
        for row in self.file.tables["changes"]:
            index, by = int(row["tensor"]), int(row["by"])
            before = next((one.now for one in reversed(found) if one.now.index == index), self._tensor(index))
            now = Tensor(self, index, int(row["content"]))
            writer = None if by < 0 else self._tensor(by)
            found.append(Change(int(row["call"]), int(row["after"]), before, now, writer))
        return tuple(found)

    def _given(self, call: int, tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """The tensors as they are before the call of that number: those in memory that was written over have other
        bytes than their rows say."""
        for change in self.changes:
            if change.call < call:
                first = self._tensor(change.now.index)
                tensors = tuple(
                    Tensor(self, one.index, change.now.content) if one is not None and one.shares_bytes(first) else one
                    for one in tensors
                )
        return tensors

    def tensors(self) -> Iterator[Tensor]:
        """Each tensor once."""
        return (Tensor(self, index) for index in range(len(self.file.tables["tensors"])))

    def _tensors(self, first: int, count: int) -> tuple[Tensor | None, ...]:
        links = self.file.tables["links"][first : first + count]
        return tuple(None if index < 0 else self._tensor(int(index)) for index in links)

    def _tensor(self, index: int) -> Tensor:
        known = self._known.get(index)
        if known is None:
            known = self._known[index] = Tensor(self, index)
        return known

    @cached_property
    def _known(self) -> dict[int, Tensor]:
        return {}

    def _json(self, call: int, field: str, line: int) -> list[Any]:
        if line < 0:
            return []
        try:
            value = json.loads(self.file.get_line(line))
        except (ValueError, RecursionError) as error:
            raise make_damage_error(self.file.path, f"`calls` row {call}: {field} is no JSON: {error}") from error
        if not isinstance(value, list):
            raise make_damage_error(self.file.path, f"`calls` row {call}: {field} is no list")
        return value


@dataclass(frozen=True, slots=True)
class ProcessOperators:
    """What one process recorded: `files` by step, `missing` what its journal says it wrote and is not there; `rest`
    what it called after its last step, "cut" whether it was ended within a step."""

    pid: int
    rank: int | None
    files: Mapping[int, Path]
    missing: tuple[Path, ...]
    rest: Path | None
    cut: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps that are whole."""
        return sorted(self.files)

    def step(self, number: int) -> Step:
        """Open a step. Raises TorchportError where it is not there or damaged."""
        if number not in self.files:
            known = f"{self.steps[0]} to {self.steps[-1]}" if self.files else "none"
            raise TorchportError(
                f"step {number} was not recorded; there are {known}", hint="See `torchport record show`."
            )
        return Step(self.files[number])


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators of a recording, by process in the order of ranks."""

    path: Path
    recording: Recording
    processes: tuple[ProcessOperators, ...]

    @classmethod
    def read(cls, path: str | Path) -> Operators:
        """Which steps the recording in the folder `path` has, finished or killed; opens none of them.

        Raises TorchportError where there is no recording or its journal is damaged.
        """
        recording = Recording.from_directory(path)
        found = []
        for process in recording.processes:
            files: dict[int, Path] = {}
            missing: list[Path] = []
            rest = None
            dropped = {event["file"] for event in process.of_kind("dropped")}
            for event in process.of_kind("operators"):
                if event["file"] in dropped:
                    continue
                if not _FILE.fullmatch(event["file"]):
                    raise make_damage_error(
                        recording.path, f"the journal of process {process.pid} names {event['file']!r:.80}"
                    )
                place = recording.path / event["file"]
                if not place.is_file():
                    missing.append(place)
                elif place.stem == layout.REST:
                    rest = place
                else:
                    files[int(event["step"])] = place
            aside = recording.path / layout.FOLDER / f"process-{process.pid}.h5{layout.UNFINISHED}"
            cut = (aside,) if aside.is_file() else ()
            notes = tuple(str(event["text"]) for event in process.of_kind("note"))
            if files or missing or rest or cut:
                found.append(ProcessOperators(process.pid, process.rank, files, tuple(missing), rest, cut, notes))
        return cls(recording.path, recording, tuple(found))

    def rank(self, rank: int = 0) -> ProcessOperators:
        """The process of a rank; of a run without ranks the first. Raises TorchportError where there is none."""
        for number, one in enumerate(self.processes):
            if rank == (number if one.rank is None else one.rank):
                return one
        raise TorchportError(
            f"{self.path} has no operators of rank {rank}",
            hint="`torchport run --record DIR` records them; see `torchport record show`.",
        )


def _arranged(path: Path, tensor: Tensor, flat: Any, row_major: bool) -> Any:
    """`flat` in the tensor's shape. A dimension with stride 0 was kept once; without gaps: in the order of strides."""
    shape, stride = tensor.shape, tensor.stride
    kept = tuple(1 if step == 0 and size > 1 else size for size, step in zip(shape, stride, strict=True))
    wanted = int(numpy.prod(kept, dtype=object)) if kept else 1
    if wanted != flat.size:
        raise make_damage_error(path, f"tensor {tensor.index} of shape {shape} has {flat.size} elements")
    if row_major or flat.size == 0:
        made = flat.reshape(kept)
    else:
        order = sorted(range(len(kept)), key=lambda place: -stride[place])
        back = sorted(range(len(kept)), key=order.__getitem__)
        made = flat.reshape([kept[place] for place in order]).transpose(back)
    made = numpy.broadcast_to(made, shape)
    made.flags.writeable = False
    return made
