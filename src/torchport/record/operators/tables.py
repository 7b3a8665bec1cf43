"""The tables of one step while they grow, in Python: for the recorder without the library, for imports and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from torchport.record.operators import layout
from torchport.record.operators.checksum import compute_checksum

BLOCK = 16 << 20  # bytes: what is written at once


@dataclass(slots=True)
class StepTables:
    """What one step's file holds but for the blocks: arrays by name, and the lines of `strings`."""

    arrays: dict[str, Any]
    strings: bytes
    lost: int = 0  # calls that could not be noted


@dataclass(slots=True)
class Row:
    """One tensor to be added: `dims` are its sizes, then its strides."""

    dims: Sequence[int]
    dtype: str
    device: str
    storage: int = -1
    version: int = 0
    offset: int = 0
    elements: int = 0
    requires_grad: bool = False
    name: str = ""
    format: str = ""
    reason: str = ""


@dataclass(slots=True)
class Measured:
    """The statistics of one tensor: of its finite elements, but for minimum and maximum, which leave out NaN alone. Of
    complex numbers those of the modulus."""

    minimum: float
    maximum: float
    mean: float
    l2: float
    nans: int
    infinities: int
    zeros: int
    checksum: int


@dataclass(slots=True)
class Tables:
    """Grows by calls and tensors. `keep(block)` takes each block of bytes that is full."""

    keep: Any
    _lines: dict[str, int] = field(default_factory=dict)
    _calls: list[tuple[Any, ...]] = field(default_factory=list)
    _tensors: list[list[Any]] = field(default_factory=list)
    _contents: list[tuple[int, ...]] = field(default_factory=list)
    _links: list[int] = field(default_factory=list)
    _dims: list[int] = field(default_factory=list)
    _known: dict[tuple[int, int], int] = field(default_factory=dict)
    _block: bytearray = field(default_factory=bytearray)
    _blocks: int = 0
    lost: int = 0

    def add_line(self, text: str) -> int:
        """Index of a line of `strings`; -1 for none."""
        if not text:
            return -1
        return self._lines.setdefault(text.replace("\n", " "), len(self._lines))

    def add_call(
        self,
        operator: str,
        overload: str,
        phase: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        arguments: str = "",
        results: str = "",
        module: str = "",
        function: str = "",
        source: str = "",
        node: str = "",
        sequence: int = -1,
        thread: int = 0,
        written: Sequence[int] = (),
    ) -> None:
        """Add a call; `inputs`, `outputs` and `written` are what `add_tensor` gave, -1 for one that is undefined."""
        first = len(self._links)
        self._links += [*inputs, *outputs, *written]
        texts = (operator, overload, module, function, source, arguments, results, node)
        self._calls.append(
            (
                sequence,
                first,
                len(inputs),
                first + len(inputs),
                len(outputs),
                *map(self.add_line, texts),
                thread & 0x7FFF,
                phase,
                len(written),
            )
        )

    def add_tensor(self, row: Row, measured: Measured | None, content: Any = None, row_major: bool = True) -> int:
        """Add a tensor, with its bytes (a flat uint8 array) where they are kept; its index."""
        first = len(self._dims)
        self._dims += row.dims
        flags = layout.MEASURED * (measured is not None)
        flags |= layout.ROW_MAJOR * row_major | layout.REQUIRES_GRAD * row.requires_grad
        nan = float("nan")
        of = measured or Measured(nan, nan, nan, nan, 0, 0, 0, 0)
        stored = -1 if content is None else self._store(content, of.checksum)
        self._tensors.append(
            [
                row.storage,
                row.version,
                row.offset,
                row.elements,
                of.minimum,
                of.maximum,
                of.mean,
                of.l2,
                of.nans,
                of.infinities,
                of.zeros,
                of.checksum,
                first,
                self.add_line(row.dtype),
                self.add_line(row.device),
                self.add_line(row.format),
                self.add_line(row.name),
                stored,
                self.add_line(row.reason),
                len(row.dims) // 2,
                flags,
            ]
        )
        return len(self._tensors) - 1

    def fill_statistics(self, index: int, measured: Measured) -> None:
        """Statistics that came later than the tensor."""
        of = measured
        self._tensors[index][4:12] = [
            of.minimum,
            of.maximum,
            of.mean,
            of.l2,
            of.nans,
            of.infinities,
            of.zeros,
            of.checksum,
        ]
        self._tensors[index][-1] |= layout.MEASURED
        self._tensors[index][18] = -1

    def _store(self, content: Any, known: int) -> int:
        data = memoryview(content).cast("B")
        value = known or compute_checksum(content)
        key = (value, len(data))
        if key in self._known:
            return self._known[key]
        if self._block and len(self._block) + len(data) > BLOCK:
            self._full()
        self._contents.append((value, len(self._block), len(data), self._blocks, 0))
        self._block += data
        self._known[key] = len(self._contents) - 1
        return len(self._contents) - 1

    def _full(self) -> None:
        self.keep(numpy.frombuffer(bytes(self._block), numpy.uint8))
        self._block, self._blocks = bytearray(), self._blocks + 1

    def finish_tables(self) -> StepTables:
        """All of it, as arrays. The tables cannot be used afterwards."""
        if self._block:
            self._full()
        rows: dict[str, Any] = {
            "calls": self._calls,
            "tensors": [tuple(row) for row in self._tensors],
            "contents": self._contents,
            "links": self._links,
            "dims": self._dims,
            "changes": [],  # who notes in Python does not look again
        }
        arrays = {name: numpy.array(rows[name], dtype) for name, dtype in layout.TABLES.items()}
        return StepTables(arrays, "\n".join(self._lines).encode(), self.lost)

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return len(self._calls)
