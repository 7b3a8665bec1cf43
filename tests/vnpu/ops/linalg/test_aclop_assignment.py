"""linalg/aclop_assignment.cpp against every possible assignment, and a refused call."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from aclop import called, check_refused, drawn

I64 = torch.int64


def cheapest(costs: torch.Tensor) -> float:
    """Of all assignments of the smaller side to the larger one."""
    if costs.shape[0] > costs.shape[1]:
        costs = costs.T
    ways = itertools.permutations(range(costs.shape[1]), costs.shape[0])
    return min(sum(float(costs[i, j]) for i, j in enumerate(way)) for way in ways)


@pytest.mark.parametrize("most", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 5), (5, 3), (1, 4), (6, 6)])
def test_assignments(rows: int, columns: int, most: bool) -> None:
    for round_ in range(4):
        costs = drawn(rows, columns) if round_ % 2 else (drawn(rows, columns) * 2).round()
        limit = torch.tensor(torch.iinfo(I64).max if round_ else columns)
        row, column = called(
            "CustLinearSumAssignment", [costs, limit, torch.tensor(most)], *[(min(rows, columns), I64)] * 2
        )
        assert row.tolist() == sorted(set(row.tolist())) and len(set(column.tolist())) == min(rows, columns)
        total = costs.double()[row, column].sum().item()
        assert abs(total - (-cheapest(-costs.double()) if most else cheapest(costs.double()))) < 1e-6


def test_assignments_among_the_first_columns() -> None:
    costs = torch.tensor([[5, 1, 0], [4, 9, 0], [7, 7, 0]], dtype=torch.int32)
    row, column = called("CustLinearSumAssignment", [costs, torch.tensor(2), torch.tensor(False)], *[(3, I64)] * 2)
    assert (row.tolist(), column.tolist()) == ([0, 1, -1], [1, 0, -1])


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[torch.Tensor], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "CustLinearSumAssignment": ([drawn(2, 3), torch.tensor(3), torch.tensor(1)], [(2, I64)] * 2, {}, "maximize is")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
