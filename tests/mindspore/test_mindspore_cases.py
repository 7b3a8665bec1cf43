"""What users do, in one process: AMP, loss scaling, optimizers, layers that call operators by their type."""

from __future__ import annotations

from typing import Any

import pytest
from running import cases


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cases("cases.py", tmp_path_factory.mktemp("cases"))


def value(said: dict[str, Any], case: str) -> Any:
    assert "error" not in said[case], said[case]
    return said[case]["said"]


@pytest.mark.parametrize("case", ["O1 Float16", "O2 Float16", "O3 Float16", "auto BFloat16", "O2 BFloat16"])
def test_mixed_precision_follows_the_plain_run(said: dict[str, Any], case: str) -> None:
    plain, mixed = value(said, "plain"), value(said, f"amp {case}")
    limit = 0.05 if "BFloat16" in case else 0.01
    assert max(abs(a - b) / b for a, b in zip(mixed, plain, strict=True)) < limit
    assert mixed != plain and mixed[-1] < mixed[0]


def test_the_scale_falls_and_grows(said: dict[str, Any]) -> None:
    assert value(said, "scaling") == [[512, 512, 1024, 1024], False, True]


@pytest.mark.parametrize(
    "case",
    [
        "mint SGD",
        "mint Adam",
        "mint AdamW",
        "nn SGD",
        "nn Momentum",
        "nn Adam",
        "nn AdamWeightDecay",
        "nn Adagrad",
        "nn RMSProp",
        "nn Adadelta",
        "nn AdaMax",
        "nn FTRL",
        "nn ProximalAdagrad",
        "nn centered RMSProp",
        "nn amsgrad Adam",
        "nn Lamb",
        "nn Rprop",
    ],
)
def test_optimizers_step_as_in_float64(said: dict[str, Any], case: str) -> None:
    losses, apart, moved = value(said, case)
    assert losses[2] < losses[0]
    assert apart < 3e-5 * moved + 1e-7 and moved > 9e-5


def test_gradients_with_a_second_result(said: dict[str, Any]) -> None:
    loss, slope = value(said, "has_aux")
    assert abs(loss) < 1e-5 and slope < 1e-5


def test_clipping_by_the_norm_of_all(said: dict[str, Any]) -> None:
    assert value(said, "clip") < 1e-6


def test_a_rate_is_assigned_as_the_guide_says(said: dict[str, Any]) -> None:
    assert value(said, "rate") == pytest.approx([0.05, 0.05], rel=1e-6)


@pytest.mark.parametrize(
    "case",
    [
        "dense",
        "max pool",
        "mean pool",
        "norm",
        "embedding",
        "relu6",
        "one hot",
        "cumsum",
        "gather nd",
        "scatter",
        "max pool padded",
        "split",
        "batch norm",
    ],
)
def test_layers_that_call_operators_by_their_type(said: dict[str, Any], case: str) -> None:
    assert value(said, f"layer {case}") < 2e-6


@pytest.mark.parametrize("case", ["planes", "volumes"])
def test_dropout_of_whole_channels(said: dict[str, Any], case: str) -> None:
    apart, whole, share = value(said, f"dropout of {case}")
    # 200 channels: 5 standard deviations.
    assert apart < 1e-6 and whole and abs(share - 0.5) < 0.18
