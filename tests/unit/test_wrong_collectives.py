"""A collective is wrong where a rank has something else than what all gave makes it, by the reference's own reduction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from torchport.compare.collectives import Seen, _Memory, compare_collective

GIVEN = (numpy.array([1.0, 2.0, 5.0]), numpy.array([3.0, -4.0, 7.0]))


def seen(name: str, given: tuple[Any, ...], had: list[dict[int, Any]]) -> list[Seen]:
    call = SimpleNamespace(name=f"c10d::{name}", module="", source="t.py:3", index=4)
    return [
        Seen(call, "float32", one, {place: [(0, part)] for place, part in after.items()})  # type: ignore[arg-type]
        for one, after in zip(given, had, strict=True)
    ]


def judge(name: str, right: list[dict[int, Any]], ours: list[dict[int, Any]], given: Any = GIVEN) -> str:
    cause = compare_collective(2, seen(name, given, right), seen(name, given, ours))
    return "" if cause is None else cause.text


SUM, MEAN = GIVEN[0] + GIVEN[1], (GIVEN[0] + GIVEN[1]) / 2


def test_a_mean_in_place_of_the_sum():
    said = judge("allreduce_", [{0: SUM}] * 2, [{0: MEAN}] * 2)
    assert said == "c10d::allreduce_ in step 2 gives the mean on every rank, the sum in the reference"


def test_one_rank_that_has_another_result():
    said = judge("allreduce_", [{0: SUM}] * 2, [{0: SUM}, {0: SUM * 1.001}])
    assert (
        said == "c10d::allreduce_ in step 2 gives what none of their values makes on rank 1, the sum in the reference"
    )
    cause = compare_collective(
        2, seen("allreduce_", GIVEN, [{0: SUM}] * 2), seen("allreduce_", GIVEN, [{0: SUM}, {0: SUM * 1.001}])
    )
    assert cause is not None
    assert (cause.operator, cause.call, cause.rank) == ("c10d::allreduce_", 4, 1)
    lost = numpy.array([SUM[0], numpy.nan, SUM[2]])
    assert "on rank 0" in judge("allreduce_", [{0: SUM}] * 2, [{0: lost}, {0: SUM}])


@pytest.mark.parametrize("right", [SUM, MEAN, numpy.maximum(*GIVEN), numpy.minimum(*GIVEN), GIVEN[0] * GIVEN[1]])
def test_each_reduction_holds_if_the_reference_has_it(right):
    assert not judge("allreduce_", [{0: right}] * 2, [{0: right.astype(numpy.float32).astype(float)}] * 2)


def test_another_order_of_summation_holds():
    draw = numpy.random.default_rng(0)
    given = tuple(draw.standard_normal(1000).astype(numpy.float32).astype(float) * 1e3 for _ in range(8))
    forth = numpy.sum(numpy.float32(given), axis=0, dtype=numpy.float32).astype(float)
    back = numpy.sum(numpy.float32(given[::-1]), axis=0, dtype=numpy.float32).astype(float)
    assert (forth != back).any()
    assert not judge("allreduce_", [{0: forth}] * 8, [{0: back}] * 8, given)


def test_what_cannot_be_known_is_not_judged():
    assert not judge("allreduce_", [{0: GIVEN[0]}, {0: GIVEN[1]}], [{0: MEAN}] * 2)  # of groups of one rank
    assert not judge("allreduce_", [{0: SUM}] * 2, [{}, {}])  # nobody looked


def test_other_collectives():
    roots = [{0: GIVEN[1]}] * 2
    assert not judge("broadcast_", roots, roots)
    assert "on rank 0, what rank 1 gave in the reference" in judge("broadcast_", roots, [{0: GIVEN[0]}, roots[1]])
    gathered = [{0: numpy.concatenate(GIVEN)}] * 2
    assert not judge("_allgather_base_", gathered, gathered)
    assert judge("_allgather_base_", gathered, [{0: numpy.concatenate(GIVEN[::-1])}] * 2)
    each = [{0: GIVEN[0], 1: GIVEN[1]}] * 2
    assert not judge("allgather_", each, each)
    assert judge("allgather_", each, [each[0], {0: GIVEN[1], 1: GIVEN[0]}])
    given = (numpy.array([1.0, 2.0]), numpy.array([3.0, 5.0]))
    parts = [{0: numpy.array([4.0])}, {0: numpy.array([7.0])}]
    assert not judge("_reduce_scatter_base_", parts, parts, given)
    assert judge("_reduce_scatter_base_", parts, parts[::-1], given)


def test_memory_that_an_operator_wrote_after_the_collective_says_nothing_of_it():
    def tensor(version: int) -> Any:
        return SimpleNamespace(storage=1, version=version, has_content=True)

    def call(name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        return SimpleNamespace(name=name, inputs=inputs, outputs=outputs, written=[])

    given = tensor(3)
    reduce = call("c10d::allreduce_", [given], [tensor(4)])
    read, later = call("aten::clone", [tensor(4)], []), call("aten::mul_", [tensor(4)], [tensor(5)])
    assert [one.version for one in _Memory([reduce, read, later]).find_after(given)] == [4, 4]
    hidden = call("aten::mul_", [SimpleNamespace(storage=1, version=4, has_content=False)], [tensor(5)])
    assert not _Memory([reduce, hidden, call("aten::clone", [tensor(5)], [])]).find_after(given)


def test_what_gloo_copies_when_it_is_waited_for_is_the_result():
    """It ends reduce_scatter_tensor and all_gather_into_tensor so: the memory is right behind the copy."""

    def tensor(storage: int, version: int) -> Any:
        return SimpleNamespace(storage=storage, version=version, has_content=True)

    def call(name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        return SimpleNamespace(name=name, inputs=inputs, outputs=outputs, written=[])

    out = tensor(1, 0)
    scatter = call("c10d::_reduce_scatter_base_", [out, tensor(2, 0)], [tensor(1, 1)])
    copy = call("aten::copy_", [tensor(1, 2), tensor(3, 0)], [tensor(1, 4)])
    read = call("aten::add_", [tensor(1, 4)], [tensor(1, 5)])
    assert [one.version for one in _Memory([scatter, copy, read]).find_after(out)] == [4]
