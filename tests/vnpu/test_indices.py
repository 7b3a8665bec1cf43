"""Indices are judged by the numbers that they lead to: equal numbers may change places, others may not."""

from __future__ import annotations

import pytest
import torch

from torchport.compare.indices import OPERATORS, score_indices

GIVEN = torch.tensor([[3.0, 1.0, 3.0, 2.0], [float("nan"), 5.0, 5.0, 5.0]])


def judge(name: str, arguments: list[object], indices: list[object], values: object = None) -> bool:
    """Whether the indices are right beside the CPU's own values."""
    word, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops.aten, word), overload or "default")(*arguments)
    pair = isinstance(found, tuple | list)
    computed = found[1] if pair else found
    beside = (found[0] if values is None else values) if pair else None
    score = score_indices(torch, name, arguments, torch.tensor(indices, dtype=torch.int64), beside, computed)
    assert score is not None
    return not score.wrong


@pytest.mark.parametrize(
    ("name", "arguments", "indices", "right"),
    [
        ("topk", [GIVEN[:1], 3, 1], [[0, 2, 3]], True),
        ("topk", [GIVEN[:1], 3, 1], [[2, 0, 3]], True),  # a tie
        ("topk", [GIVEN[:1], 3, 1], [[0, 3, 2]], False),  # swapped, the values are right
        ("topk", [GIVEN[:1], 3, 1], [[0, 0, 3]], False),  # one place twice
        ("topk", [GIVEN[:1], 3, 1], [[0, 2, 7]], False),  # out of the tensor
        ("topk", [GIVEN[:1], 3, 1], [[0, 2, -1]], False),
        ("sort", [GIVEN[1], 0], [3, 1, 2, 0], True),
        ("sort", [GIVEN[1], 0], [0, 1, 2, 3], False),  # NaN is last
        ("max.dim", [GIVEN[:1], 1], [2], True),  # without the dimension
        ("max.dim", [GIVEN[:1], 1], [3], False),
        ("max.dim", [GIVEN[:1], 1, True], [[2]], True),
        ("median.dim", [GIVEN[:1], -1], [1], False),
        ("argmax", [GIVEN[0]], 2, True),  # of all numbers
        ("argmax", [GIVEN[0]], 3, False),
        ("argmin", [GIVEN[:1], 1], [1], True),
        ("argsort", [GIVEN[0], 0, True], [2, 0, 3, 1], True),
        ("argsort", [GIVEN[0], 0, True], [0, 0, 3, 1], False),
        ("cummax", [GIVEN[0], 0], [0, 0, 0, 0], True),
        ("cummax", [GIVEN[0], 0], [0, 0, 2, 3], False),
        ("max_pool2d_with_indices", [GIVEN[0].reshape(1, 1, 2, 2), [2, 2]], [[[[2]]]], True),
        ("max_pool2d_with_indices", [GIVEN[0].reshape(1, 1, 2, 2), [2, 2]], [[[[3]]]], False),
    ],
)
def test_indices(name: str, arguments: list[object], indices: list[object], right: bool) -> None:
    assert judge(name, arguments, indices) is right


def test_other_shapes_and_operators() -> None:
    found = torch.topk(GIVEN[:1], 2)
    other = score_indices(torch, "topk", [GIVEN[:1], 2, 1], found.indices[:, :1], found.values, found.indices)
    assert other is not None and other.wrong
    assert score_indices(torch, "unique_dim", [GIVEN], found.indices, None, found.indices) is None
    assert {"topk", "argmax", "adaptive_max_pool2d"} <= OPERATORS
