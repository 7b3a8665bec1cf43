"""In which order the virtual NPU adds, and how a report says so."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from torchport.errors import TorchportError
from torchport.launch.keeper import Ended
from torchport.port import sums as counted
from torchport.record.operators.reading import Operators
from torchport.report import wording
from torchport.results.port import SumOrder
from torchport.vnpu import Kind, choose_sum_order, sums


@pytest.mark.parametrize(
    ("reordered", "told", "seed"),
    [(False, "", None), (False, "cpu", None), (False, "7", 7), (True, "", 1), (True, "cpu", 1), (True, "7", 7)],
)
def test_the_seed_of_the_command_and_of_the_variable(reordered: bool, told: str, seed: int | None) -> None:
    assert choose_sum_order(reordered=reordered, environ={"VNPU_SUM_ORDER": told}) == seed


def test_a_real_npu_has_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "detect", lambda: types.SimpleNamespace(kind=Kind.CANN))
    assert choose_sum_order(reordered=False, environ={"VNPU_SUM_ORDER": "7"}) is None
    with pytest.raises(TorchportError, match="--reordered is a setting of the virtual NPU"):
        choose_sum_order(reordered=True, environ={})


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (None, ""),
        (SumOrder(7), "added in another order than the CPU's (seed 7)"),
        (
            SumOrder(1, 1200, 900),
            "added in another order than the CPU's (seed 1): 75% of 1,200 results of operators in step 0 have other bits",
        ),
    ],
)
def test_the_share_of_results_with_other_bits(order: SumOrder | None, said: str) -> None:
    assert wording.describe_sum_order(types.SimpleNamespace(sums=order)) == said  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stopped", "why"),
    [("timeout", "recording one step took more than 120 s"), ("", "the run of one step recorded no operator")],
)
def test_operators_that_cannot_be_counted_are_said(tmp_path: Path, monkeypatch: Any, stopped: str, why: str) -> None:
    """A script that makes its data by a loop over operators takes minutes for its first step."""
    said: list[str] = []
    plan: Any = types.SimpleNamespace(sum_order=7, operators=True, reference=None, timeout=None)
    progress: Any = types.SimpleNamespace(note=said.append)
    monkeypatch.setattr(counted.controls, "rerun_side", lambda *_, **__: (None, Ended(0, 1.0, stopped)))
    monkeypatch.setattr(Operators, "read", lambda folder: types.SimpleNamespace(processes=()))
    found = counted.measure_sum_order(plan, tmp_path / "sums", progress)
    assert found is not None
    assert found.results == 0
    assert said[-1] == f"how many results have other bits is not known: {why}"
    assert not (tmp_path / "sums").exists()
