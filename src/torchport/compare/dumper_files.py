"""Two files of `torch.utils.dumper`, as the porting guide compares them (`msaccucmp.py compare -m NPU -g GPU`).

A file has /<operator>/<n>/input/<i> and /<operator>/<n>/output/<i> for the n-th call of an operator. The second file is
meant to be made with `load_file_path` of the first: then an operator has the same inputs in both, and what its results
are apart is its own error. Needs h5py and numpy; no torch.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from torchport.compare.precision import COARSEST, NPU
from torchport.compare.replayed import NO_RESULT, RANDOM_WORDS
from torchport.compare.tensors import Metrics, compute_metrics
from torchport.errors import TorchportError
from torchport.record.hdf5 import import_h5py

JUDGED, INHERITED, RANDOM = "judged", "its inputs differ", "it is drawn, or memory that nobody has written"
# A unit in the last place of 1, of what sums are kept in: float32 for shorter types.
ROUNDING = {"float64": 2.0**-52}
FLOAT32_ROUNDING = 2.0**-23


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One result of one call in both files. `metrics` is the distance of the second file's from the first's, None for
    other shapes and for integers; `allowed` is the Euclidean distance that CANN's bound for one operator and the
    rounding of its inputs explain. `kind` is JUDGED, or why it was not."""

    operator: str
    call: int
    result: int
    dtype: str
    kind: str
    wrong: bool
    text: str
    allowed: float = 0.0
    metrics: Metrics | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Files:
    """`rows` by the names of operators, which is the order of such a file; `alone` counts the calls of either file that
    the other lacks, by operator."""

    rows: Sequence[Row]
    alone: tuple[dict[str, int], dict[str, int]]

    @property
    def judged(self) -> list[Row]:
        """The results of operators that were given the same in both."""
        return [row for row in self.rows if row.kind == JUDGED]

    @property
    def wrong(self) -> list[Row]:
        """The judged results that nothing explains."""
        return [row for row in self.judged if row.wrong]

    def count_unjudged(self) -> dict[str, int]:
        """How many results were not judged, by the reason."""
        counts: dict[str, int] = {}
        for row in self.rows:
            if row.kind != JUDGED:
                counts[row.kind] = counts.get(row.kind, 0) + 1
        return counts

    def to_csv(self) -> str:
        """A line for each result."""
        text = io.StringIO()
        names = [field.name for field in dataclasses.fields(Metrics)]
        head = ["operator", "call", "result", "dtype", "kind", "wrong", "text", "allowed", *names]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(head)
        for row in self.rows:
            metrics = [""] * len(names) if row.metrics is None else [getattr(row.metrics, name) for name in names]
            writer.writerow([*(getattr(row, name) for name in head[:8]), *metrics])
        return text.getvalue()


def compare_dumper_files(reference: Path, port: Path) -> Files:
    """Compare two files. Raises TorchportError for one that is no such file or has no calls."""
    h5py = import_h5py()
    opened: list[Any] = []
    try:
        for path in (reference, port):
            try:
                opened.append(h5py.File(path, "r", locking=False))
            except FileNotFoundError as error:
                raise TorchportError(f"there is no file {path}") from error
            except OSError as error:
                raise TorchportError(
                    f"{path} is no whole HDF5 file: {' '.join(str(error).split())[:160]}", hint="Dump it again."
                ) from error
        calls = [dict(_list_calls(h5py, file)) for file in opened]
        for path, found in zip((reference, port), calls, strict=True):
            if not found:
                raise TorchportError(
                    f"{path} has no calls of operators (/<operator>/<n>/output/<i>)",
                    hint="Dump with torch.utils.dumper(use_dump=True, dump_path=...) of `import torchport.legacy`.",
                )
        rows = [row for key in calls[0] if key in calls[1] for row in _judge(key, calls[0][key], calls[1][key])]
        alone = _count(calls[0].keys() - calls[1].keys()), _count(calls[1].keys() - calls[0].keys())
        return Files(rows, alone)
    finally:
        for file in opened:
            file.close()


def _count(keys: set[tuple[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for operator, _ in sorted(keys):
        counts[operator] = counts.get(operator, 0) + 1
    return counts


def _list_calls(h5py: Any, file: Any) -> Iterator[tuple[tuple[str, int], Any]]:
    for operator, group in file.items():
        if not isinstance(group, h5py.Group):
            continue
        for number in sorted((name for name in group if name.isdecimal()), key=int):
            if isinstance(group[number], h5py.Group):
                yield (operator, int(number)), group[number]


def _read(call: Any, kind: str) -> dict[int, Any]:
    group = call.get(kind)
    return {} if group is None else {int(name): group[name] for name in group if name.isdecimal()}


def _dtype(dataset: Any) -> str:
    said = dataset.attrs.get("dtype", dataset.dtype.name)
    said = said.decode() if isinstance(said, bytes) else str(said)
    return said.removeprefix("torch.")


def _judge(key: tuple[str, int], one: Any, other: Any) -> Iterator[Row]:
    operator, number = key
    given, theirs = _read(one, "input"), _read(other, "input")
    kind = JUDGED
    if f"aten::{operator}" in NO_RESULT or any(word in operator for word in RANDOM_WORDS):
        kind = RANDOM
    elif given.keys() != theirs.keys() or not all(_equal(given[place], theirs[place]) for place in given):
        kind = INHERITED
    rounding = _measure_rounding(given)
    results, ours = _read(one, "output"), _read(other, "output")
    for place in sorted(results.keys() & ours.keys()):
        row = _judge_result(operator, number, place, kind, results[place], ours[place], rounding)
        if row.wrong and kind == JUDGED and (tanh := _compute_tanh_gelu(operator, given)) is not None:
            row = min(row, _judge_result(operator, number, place, kind, tanh, ours[place], rounding), key=_is_wrong)
        yield row


def _is_wrong(row: Row) -> bool:
    return row.wrong


def _compute_tanh_gelu(operator: str, given: dict[int, Any]) -> Any:
    """GELU in its tanh form, in which an NPU computes it, or its gradient; None for another operator."""
    if operator not in ("gelu", "gelu_backward") or not given:
        return None
    x = given[max(given)][()].astype(numpy.float64)
    scale, cubic = numpy.sqrt(2 / numpy.pi), 0.044715
    tanh = numpy.tanh(scale * (x + cubic * x**3))
    if operator == "gelu":
        return 0.5 * x * (1 + tanh)
    slope = 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * scale * (1 + 3 * cubic * x**2)
    return given[min(given)][()].astype(numpy.float64) * slope


def _judge_result(operator: str, number: int, place: int, kind: str, one: Any, other: Any, rounding: float) -> Row:
    dtype = _dtype(other)
    if one.shape != other.shape:
        text = f"its shape is {other.shape}, {one.shape} is right"
        return Row(operator, number, place, dtype, kind, True, text)
    right, found = one[...], other[...]
    if right.dtype.kind not in "fc" or found.dtype.kind not in "fc":
        differ = int(numpy.count_nonzero(right != found))
        return Row(operator, number, place, dtype, kind, differ > 0, f"{differ:,} of {right.size:,} elements differ")
    metrics = compute_metrics(right, found, dtype)
    size = float(numpy.sqrt(numpy.mean(numpy.square(numpy.abs(right), dtype=numpy.float64)))) if right.size else 0.0
    terms = rounding / max(1, right.size)
    allowed = NPU.get(dtype, COARSEST) + (ROUNDING.get(dtype, FLOAT32_ROUNDING) * terms / size if size else numpy.inf)
    spoilt = int(numpy.count_nonzero(numpy.isfinite(right) & ~numpy.isfinite(found)))
    text = f"{metrics.euclidean:.2g} off, {allowed:.2g} is allowed; cosine {metrics.cosine:.7g}"
    if spoilt:
        text = f"{spoilt:,} of {right.size:,} elements are no numbers where there are numbers"
    wrong = spoilt > 0 or metrics.euclidean > allowed
    return Row(operator, number, place, dtype, kind, wrong, text, float(allowed), metrics)


def _equal(one: Any, other: Any) -> bool:
    return one.shape == other.shape and numpy.array_equal(one[()], other[()], equal_nan=one.dtype.kind in "fc")


def _measure_rounding(given: dict[int, Any]) -> float:
    """Magnitude of the inputs, times how many numbers may be summed for all results: what cancels leaves the rounding
    of that behind."""
    largest, elements = 1.0, 0
    for dataset in given.values():
        if dataset.dtype.kind in "fc" and dataset.size:
            values = numpy.abs(dataset[()])
            finite = values[numpy.isfinite(values)]
            largest *= max(1.0, float(finite.max())) if finite.size else 1.0
            elements = max(elements, dataset.size)
    return largest * elements
