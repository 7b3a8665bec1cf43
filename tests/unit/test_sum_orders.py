"""In which order the virtual NPU adds, and how a report says so."""

from __future__ import annotations

import types

import pytest

from torchport.errors import TorchportError
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
