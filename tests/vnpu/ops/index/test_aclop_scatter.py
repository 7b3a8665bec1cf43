"""index/aclop_scatter.cpp: rows and elements that change where indices say so, against loops in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran

CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": lambda x, y: x / y,
    "Max": np.maximum,
    "Min": np.minimum,
    "Update": lambda _, y: y,
}


def expected(x: torch.Tensor, places: torch.Tensor, updates: torch.Tensor, kind: str, deep: bool) -> Any:
    """One index after the other."""
    made = x.double().numpy().copy()
    fronts = places.shape[:-1] if deep else places.shape
    for where in np.ndindex(*fronts):
        place = tuple(places[where].tolist()) if deep else (int(places[where]),)
        made[place] = CHANGES[kind](made[place], updates[where].double().numpy())
    return torch.from_numpy(made)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("kind", CHANGES)
def test_rows_of_a_variable(kind: str, dtype: torch.dtype) -> None:
    x, places, updates = drawn(5, 3), torch.tensor([[4, 0], [4, 2]], dtype=dtype), drawn(2, 2, 3)
    there = expected(x, places, updates, kind, False)
    near(ran(f"Scatter{kind}", [x, places, updates], (5, 3))[0], there)
    near(ran.operands[0].double(), there)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["Add", "Sub", "Max", "Min", "Update"])
def test_places_in_a_variable(name: str) -> None:
    x = drawn(4, 3, 2)
    for places, updates in (
        (torch.tensor([[3, 1], [0, 0], [3, 1]]), drawn(3, 2)),
        (torch.tensor([[[2]], [[2]]]), drawn(2, 1, 3, 2)),
        (torch.tensor([3, 2, 1], dtype=torch.int32), drawn(1)[0]),
    ):
        there = expected(x, places, updates, name, True)
        near(ran(f"ScatterNd{name}", [x, places, updates], x.shape)[0], there)
        near(ran.operands[0].double(), there)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["TensorScatterSub", "TensorScatterMax", "TensorScatterMin", "ScatterNonAliasingAdd"])
def test_changed_copies(name: str) -> None:
    x, places, updates = drawn(4, 3), torch.tensor([[3, 1], [0, 0], [3, 1]]), drawn(3)
    (y,) = ran(name, [x, places, updates], x.shape)
    near(y, expected(x, places, updates, name[-3:], True))
    assert torch.equal(ran.operands[0], x)  # type: ignore[attr-defined]


def test_whole_numbers() -> None:
    x, places, updates = (
        torch.tensor([7, -7, 5], dtype=torch.int32),
        torch.tensor([1, 0]),
        torch.tensor([2, 2], dtype=torch.int32),
    )
    assert ran("ScatterDiv", [x, places, updates], (3, torch.int32))[0].tolist() == [3, -3, 5]
    assert ran("ScatterMul", [x, places, updates], (3, torch.int32))[0].tolist() == [14, -14, 5]


def test_half_precision_is_rounded_once() -> None:
    x, places = torch.tensor([2048.0]).half(), torch.zeros(4, dtype=torch.int64)
    assert ran("ScatterAdd", [x, places, torch.ones(4).half()], (1, torch.float16))[0].item() == 2052


@pytest.mark.parametrize(("name", "sign"), [("InplaceAddD", 1), ("InplaceSubD", -1)])
def test_rows_of_an_attribute(name: str, sign: int) -> None:
    x, v = drawn(4, 3), drawn(2, 3)
    there = x.double().clone()
    there[[3, 1]] += sign * v.double()
    near(ran(name, [x, v], (4, 3), indices=[3, 1])[0], there)


PLACES = torch.tensor([[0, 1]])
# Operator: inputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[torch.Tensor], dict[str, Any], str]] = {
    "ScatterAdd": ([drawn(3, 2), PLACES, drawn(2, 2)], {}, "the updates is"),
    "ScatterSub": ([drawn(3, 2), PLACES.half(), drawn(1, 2, 2)], {}, "the indices is"),
    "ScatterMul": ([drawn(3, 2), PLACES, drawn(1, 2, 2).half()], {}, "the updates is"),
    "ScatterDiv": ([drawn(3, 2).double(), PLACES, drawn(1, 2, 2).double()], {}, "the variable is"),
    "ScatterMax": ([drawn(3, 2).char(), PLACES, drawn(1, 2, 2).char()], {}, "the variable is"),
    "ScatterMin": ([drawn(1)[0], PLACES, drawn(1, 2)], {}, "the variable is"),
    "ScatterUpdate": ([drawn(3, 2), PLACES, drawn(1, 2)], {}, "the updates is"),
    "ScatterNdAdd": ([drawn(3), PLACES, drawn(1)], {}, "the variable is"),
    "ScatterNdSub": ([drawn(3, 2), PLACES, drawn(2)], {}, "the updates is"),
    "ScatterNdMax": ([drawn(3, 2), PLACES.half(), drawn(1)], {}, "the indices is"),
    "ScatterNdMin": ([drawn(3, 2), PLACES[0, 0], drawn(1)], {}, "expected places"),
    "ScatterNdUpdate": ([drawn(3, 2), PLACES, drawn(1).half()], {}, "the updates is"),
    "ScatterNonAliasingAdd": ([drawn(3, 2), PLACES, drawn(1, 2)], {}, "the updates is"),
    "TensorScatterSub": ([drawn(3, 2), PLACES[:, :0], drawn(1, 3, 2)], {}, "the variable is"),
    "TensorScatterMax": ([drawn(3, 2) > 0, PLACES, drawn(1) > 0], {}, "the variable is"),
    "TensorScatterMin": ([drawn(3, 2), PLACES, drawn(2)], {}, "the updates is"),
    "InplaceAddD": ([drawn(3, 2), drawn(1, 2)], {"indices": [3]}, "indices has 3"),
    "InplaceSubD": ([drawn(3, 2), drawn(2, 2)], {"indices": [1]}, "v is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, attributes, words = REFUSED[name]
    status, message = launch(name, [each.npu() for each in inputs], [torch.zeros_like(inputs[0]).npu()], **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
