"""VNPU_SUM_ORDER: operators add in another, seeded order, with an error that is no larger than that of the CPU's order."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from forked import python

PROGRAM = Path(__file__).parents[1] / "programs" / "sums.py"
MOST = 2.0  # times the error of the CPU's order
# Whose every result and gradient is a sum, of few enough terms that other bits cannot be chance.
CHANGES = (
    *("mm", "addmm", "bmm", "linear", "mv", "conv2d", "conv2d in groups", "conv_transpose2d", "sum", "mean"),
    *("vector_norm", "_foreach_norm", "logsumexp", "softmax", "log_softmax", "layer_norm", "group_norm"),
    *("cross_entropy", "mse_loss", "scatter_add", "npu_fusion_attention"),
)
# The forward pass only moves rows, or, of batch norm, adds in float64.
CHANGES_IN_GRADIENT = ("embedding", "index", "index_select", "batch_norm")
STAYS = ("add", "gelu", "gather", "transpose")


@functools.cache
def measured(order: str) -> dict[str, list[tuple[str, float]]]:
    result = python(PROGRAM.read_text(), VNPU_SUM_ORDER=order)
    assert result.returncode == 0, result.stderr
    found: dict[str, list[tuple[str, float]]] = json.loads(result.stdout.splitlines()[-1])
    return found


def bits(order: str, name: str) -> list[str]:
    return [digest for digest, _ in measured(order)[name]]


@pytest.mark.parametrize("name", CHANGES)
def test_sums_have_other_bits(name: str) -> None:
    assert bits("7", name)[0] != bits("cpu", name)[0]
    assert bits("7", name)[0] != bits("8", name)[0]


@pytest.mark.parametrize("name", CHANGES_IN_GRADIENT)
def test_gradients_have_other_bits(name: str) -> None:
    (result, *gradients), (result_cpu, *gradients_cpu) = bits("7", name), bits("cpu", name)
    assert result == result_cpu
    assert gradients != gradients_cpu


@pytest.mark.parametrize("name", STAYS)
def test_what_does_not_add_stays(name: str) -> None:
    assert bits("7", name) == bits("cpu", name)


@pytest.mark.parametrize("name", CHANGES + CHANGES_IN_GRADIENT + STAYS)
def test_no_error_is_twice_that_of_the_cpu(name: str) -> None:
    for (_, error), (_, error_cpu) in zip(measured("7")[name], measured("cpu")[name], strict=True):
        assert error <= MOST * error_cpu


def test_a_seed_gives_the_same_bits_again() -> None:
    result = python(PROGRAM.read_text(), VNPU_SUM_ORDER="7")
    assert json.loads(result.stdout.splitlines()[-1]) == measured("7")
