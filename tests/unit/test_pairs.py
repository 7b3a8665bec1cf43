"""How far the results of two recordings are apart: calls that are the same, and regions that are not."""

from __future__ import annotations

import csv

import numpy
import pytest
from test_operator_files import Given, measured, write

from torchport.compare import pairs, tensors
from torchport.record.operators.reading import Operators
from torchport.record.operators.tables import Row, Tables


class Recorded:
    """A step of calls over tensors that are known by their names."""

    def __init__(self) -> None:
        self.source = Given()
        self.tables = Tables(lambda block: self.source.items.append(("block", block)))
        self.known: dict[str, int] = {}

    def tensor(self, name, value, storage=None, device="cpu"):
        value = numpy.ascontiguousarray(value, numpy.float32)
        dims = [*value.shape, *(stride // 4 for stride in value.strides)]
        row = Row(dims, "float32", device, storage or len(self.known) + 1, elements=value.size)
        index = self.tables.add_tensor(row, measured(value.reshape(-1)), value.reshape(-1).view("u1"))
        self.known[name] = index
        return self

    def call(self, operator, inputs, outputs, module="net", phase=0, arguments="", sequence=-1):
        given, gave = ([self.known[name] for name in names.split()] for names in (inputs, outputs))
        self.tables.add_call(
            f"aten::{operator}",
            "",
            phase,
            given,
            gave,
            module=module,
            source="train.py:7",
            arguments=arguments,
            sequence=sequence,
        )
        return self

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        return Operators.read(write(folder, 1, lambda: (self.source, self.tables)))


X, Y = numpy.ones((2, 3)), numpy.full((2, 3), 2.0)


def written_out(folder, out=Y):
    made = Recorded().tensor("x", X).tensor("s", X[:, :1]).tensor("p", X[:, :1]).tensor("o", out).tensor("y", Y)
    made.call("relu", "x", "x").call("bmm", "x", "s").call("_softmax", "s", "p").call("bmm", "p", "o")
    return made.call("addmm", "o", "y").write(folder)


def fused(folder, out=Y):
    made = Recorded().tensor("x", X).tensor("o", out).tensor("y", Y)
    return made.call("relu", "x", "x").call("fused", "x", "o").call("addmm", "o", "y").write(folder)


def test_regions_are_compared_at_their_frontier(tmp_path):
    found = pairs.pair_results(written_out(tmp_path / "a"), fused(tmp_path / "b", Y * 1.5))
    assert found.calls == (5, 3)
    assert found.same == 2
    (region,) = found.regions
    assert (list(region.reference), list(region.port)) == (["bmm", "_softmax", "bmm"], ["fused"])
    assert region.compared == 1
    (row,) = [pair for pair in found.pairs if pair.region]
    assert (row.operator, row.module, row.how) == ("aten::fused", "net", "tensors")
    assert row.euclidean == pytest.approx(0.5)
    assert found.apart[0, row.call] == pytest.approx(0.5)
    (line,) = [row for row in csv.DictReader(found.to_csv().splitlines()) if row["region"]]
    assert float(line["largest"]) == 1.0
    assert line["region"] == "bmm _softmax bmm | fused"


def test_nothing_is_apart_where_nothing_differs(tmp_path):
    found = pairs.pair_results(written_out(tmp_path / "a"), fused(tmp_path / "b"))
    assert [pair.euclidean for pair in found.pairs] == [0.0] * len(found.pairs)
    assert len(found.pairs) == 3
    same = pairs.pair_results(written_out(tmp_path / "c"), written_out(tmp_path / "d"))
    assert same.regions == []
    assert same.same == 5


def test_a_region_without_a_frontier_of_one_shape_says_so(tmp_path):
    found = pairs.pair_results(written_out(tmp_path / "a"), fused(tmp_path / "b", numpy.ones((3, 2))))
    assert [region.compared for region in found.regions] == [0]
    assert not [pair for pair in found.pairs if pair.region]


def run_twice(folder, *gradients):
    """A module that runs twice; `gradients` are the calls whose gradients are computed, in that order."""
    made = Recorded().tensor("x", X).tensor("0", X).tensor("1", Y)
    for number in (0, 1):
        made.call("relu", "x", "x", sequence=number)
    for number in gradients:
        made.call("threshold_backward", "x", str(number), phase=1, sequence=number)
    return made.write(folder)


def test_gradients_are_those_of_the_same_forward_call(tmp_path):
    """Where only one side follows the second run of a module, its gradient is none of the first run's."""
    found = pairs.pair_results(run_twice(tmp_path / "a", 1, 0), run_twice(tmp_path / "b", 0))
    assert [pair.euclidean for pair in found.pairs if pair.phase == "backward"] == [0.0]
    (region,) = found.regions
    assert (region.phase, list(region.reference), list(region.port)) == ("backward", ["threshold_backward"], [])
    same = pairs.pair_results(run_twice(tmp_path / "c", 1, 0), run_twice(tmp_path / "d", 1, 0))
    assert (same.same, same.regions) == (4, [])


def plain(one, other):
    """The metrics once more, of whole arrays in float64."""
    a, b = (numpy.asarray(array, numpy.float64).reshape(-1) for array in (one, other))
    relative = abs(b - a) / numpy.maximum(abs(a), numpy.finfo(numpy.float32).tiny)
    return [
        abs(b - a).max(),
        relative.max(),
        relative.mean(),
        a @ b / (numpy.linalg.norm(a) * numpy.linalg.norm(b)),
        numpy.linalg.norm(b - a) / numpy.linalg.norm(a),
        (relative <= 1e-3).mean(),
        (relative <= 5e-3).mean(),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_metrics_of_many_blocks_are_those_of_the_whole(dtype):
    draw = numpy.random.default_rng(0)
    one = draw.standard_normal(3 * tensors.BLOCK + 5).astype(dtype)
    other = one.copy()
    place = slice(tensors.BLOCK - 7, None)  # the first block differs at its end alone
    other[place] = (one[place] * (1 + draw.normal(0, 2e-3, one[place].size))).astype(dtype)
    found = tensors.compute_metrics(one, other, dtype)
    figures = [
        found.largest,
        found.largest_relative,
        found.mean_relative,
        found.cosine,
        found.euclidean,
        found.within_1000,
        found.within_200,
    ]
    assert figures == pytest.approx(plain(one, other), rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "array", "units"),
    [("float32", numpy.float32, 3), ("float64", numpy.float64, 3), ("float16", numpy.float16, 3)],
)
def test_units_in_the_last_place(dtype, array, units):
    one = numpy.array([1.0, -3.0, 0.0], array)
    other = one.copy()
    for _ in range(units):
        other[1] = numpy.nextafter(other[1], array(-10))
    assert tensors.compute_metrics(one, other, dtype).ulp == units
    assert tensors.compute_metrics(one, one.copy(), dtype).ulp == 0


def test_units_of_opposite_numbers_do_not_wrap_around():
    one = numpy.array([-1e150])
    assert tensors.compute_metrics(one, -one, "float64").ulp > 2.0**63


def test_units_of_bfloat16_are_counted_in_its_own():
    one = numpy.array([1.0], numpy.float32)
    assert tensors.compute_metrics(one, one + numpy.float32(2.0**-6), "bfloat16").ulp == 2
