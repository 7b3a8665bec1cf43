"""Evaluations within a training: modes are exact, outputs as far as the loss of their step."""

from __future__ import annotations

import math
from typing import Any

import pytest

from torchport.compare.evaluations import compare_evaluations
from torchport.compare.series import LOSS, Series
from torchport.compare.tolerance import TOLERANCES
from torchport.compare.yardstick import Pair
from torchport.record.recording import Process


def process(*events: dict[str, Any]) -> Process:
    return Process("1", [{"kind": "evaluation", "site": "a.py:9 Net", "call": 0, **event} for event in events])


def evaluation(step: int, norms: list[Any], training: int = 0, **more: Any) -> dict[str, Any]:
    return {"step": step, "norms": norms, "training": training, "modules": 3, **more}


def losses(*allowed: float) -> list[Pair]:
    series = Series(LOSS, "a.py:5", list(range(len(allowed))), [1.0] * len(allowed), [0.0] * len(allowed))
    return [Pair((LOSS, "a.py:5", 0), series, series, [0.0] * len(allowed), None, list(allowed))]


def differ(
    one: list[Any], other: list[Any], pairs: list[Pair], dtype: str = "float32", noise: Process | None = None
) -> list[str]:
    found = compare_evaluations(process(*one), process(*other), noise, pairs, TOLERANCES[dtype])
    return [finding.message for finding in found]


def test_another_mode_is_named_however_near_the_outputs_are() -> None:
    for dtype in TOLERANCES:
        (said,) = differ([evaluation(5, [2.0])], [evaluation(5, [2.0], training=3)], losses(math.inf), dtype)
        assert said == (
            "at a.py:9 Net after step 5 3 of 3 modules are in training mode in the port, 0 of 3 modules are in training "
            "mode in the original"
        )


@pytest.mark.parametrize(
    ("step", "port", "refused"),
    [
        (0, [2.0 * (1 + 2e-4)], True),  # ten times 1e-5
        (0, [2.0 * (1 + 5e-5)], False),
        (2, [2.0 * (1 + 2e-4)], False),  # the loss may be 1e-3 off since step 1
        (2, [2.0 * (1 + 2e-2)], True),  # never more than a whole run may be
        (2, ["nan"], True),
        (2, [2.0, 1.0], True),
        (2, [None], False),
        (3, [9.0], False),  # from step 3 on the losses say nothing
    ],
)
def test_outputs(step: int, port: list[Any], refused: bool) -> None:
    reference: list[Any] = [None] if port == [None] else [2.0]
    said = differ([evaluation(step, reference)], [evaluation(step, port)], losses(1e-5, 1e-3, 1e-3, math.inf))
    assert bool(said) == refused
    if refused:
        assert said[0].startswith(f"what a.py:9 Net gives without gradients differs after step {step}: ")


def test_the_first_difference_is_the_one_that_is_named() -> None:
    one = [evaluation(step, [2.0], call=call) for step in (1, 0) for call in (1, 0)]
    other = [event | {"norms": [3.0 + event["step"] + event["call"]]} for event in one]
    (said,) = differ(one, other, losses(1e-5, 1e-5))
    assert "after step 0: 5.0e-01 relative" in said


def test_half_precision_and_what_one_side_lacks_is_not_compared() -> None:
    assert differ([evaluation(0, [2.0])], [evaluation(0, [3.0])], losses(1e-5), "bfloat16") == []
    assert differ([evaluation(0, [2.0])], [evaluation(1, [3.0])], losses(1e-5, 1e-5)) == []
    assert differ([evaluation(0, [2.0])], [evaluation(0, [3.0])], []) == []


def test_what_rounding_alone_moves_is_allowed_up_to_there_and_no_fault_of_the_control_run_is() -> None:
    one, other = [evaluation(9, [2.0])], [evaluation(9, [2.0 * (1 + 2e-3)])]
    pairs = losses(*[1e-5] * 10)
    noise = [evaluation(7, [2.0]), evaluation(9, [2.0 * (1 + 3e-4)])]
    assert differ(one, other, pairs)
    assert differ(one, other, pairs, noise=process(*noise)) == []
    fault = {"kind": "fault", "step": 8, "what": "input", "name": "sample", "optimizer": None, "parameter": None}
    assert differ(one, other, pairs, noise=process(fault, *noise))
    elsewhere = [event | {"site": "b.py:1 Net"} for event in noise]
    assert differ(one, other, pairs, noise=process(*elsewhere))


def test_half_precision_is_compared_if_rounding_was_measured() -> None:
    one = [evaluation(0, [2.0])]
    noise = process(evaluation(0, [2.0 * (1 + 1e-3)]))
    pairs = losses(1e-3)
    assert differ(one, [evaluation(0, [2.3])], pairs, "bfloat16", noise)
    assert differ(one, [evaluation(0, [2.0 * (1 + 3e-3)])], pairs, "bfloat16", noise) == []
