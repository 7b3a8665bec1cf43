"""Operators computed by the CPU in halves: one that is to blame is named, and nothing is where none is."""

from __future__ import annotations

import math

import pytest

from torchport.compare import halving

NAMES = [f"aten::op{number:03}" for number in range(60)]


class Device:
    """A device whose loss is `away` unless the CPU computes all of `wrong`; `rest` is there whatever the CPU computes."""

    def __init__(self, wrong, away=1e-2, rest=3e-7):
        self.wrong, self.away, self.rest, self.runs = set(wrong), away, rest, 0

    def __call__(self, names):
        self.runs += 1
        return self.rest if self.wrong and self.wrong <= set(names) else self.away


@pytest.mark.parametrize("name", [NAMES[0], NAMES[29], NAMES[30], NAMES[59]])
def test_the_operator_is_named_in_about_log2_runs(name):
    device = Device([name])
    found = halving.halve_candidates(NAMES, device.away, device)
    assert (found.outcome, list(found.names)) == (halving.FOUND, [name])
    assert device.runs <= math.ceil(math.log2(len(NAMES))) + 2
    assert found.sentence == f"{name} alone explains it"
    # It was proven: the last run that followed had this operator alone on the CPU.
    assert [list(one.names) for one in found.tries if one.follows][-1] == [name]


def test_two_operators_are_not_called_one():
    device = Device([NAMES[3], NAMES[50]])
    found = halving.halve_candidates(NAMES, device.away, device)
    assert found.outcome == halving.SEVERAL
    assert {NAMES[3], NAMES[50]} <= set(found.names)
    assert "no single operator explains it" in found.sentence


def test_what_no_operator_explains_is_said():
    device = Device([])
    found = halving.halve_candidates(NAMES, device.away, device)
    assert (found.outcome, list(found.names), device.runs) == (halving.OTHER, [], 1)


def test_a_loss_that_follows_is_not_looked_into():
    device = Device([NAMES[1]], away=5e-8)
    assert halving.halve_candidates(NAMES, device.away, device).outcome == halving.FOLLOWS
    assert device.runs == 0
    near = Device([], away=6e-7, rest=6e-7)
    assert halving.halve_candidates(NAMES, near.away, near).outcome == halving.FOLLOWS


def test_a_loss_that_is_no_number():
    device = Device([NAMES[7]], away=math.inf)
    assert list(halving.halve_candidates(NAMES, math.inf, device).names) == [NAMES[7]]


def test_distances_of_losses():
    one = {"train.py:3": [2.0, 1.0, 0.5]}
    assert halving.measure_loss_distance(one, one) == 0
    assert halving.measure_loss_distance(one, {"train.py:3": [2.0, 1.0, 0.505]}) == pytest.approx(0.01)
    assert halving.measure_loss_distance(one, {"train.py:3": [2.0, 1.0]}) == math.inf
    assert halving.measure_loss_distance(one, {"train.py:4": [2.0, 1.0, 0.5]}) == math.inf
    assert halving.measure_loss_distance(one, {"train.py:3": [2.0, math.nan, 0.5]}) == math.inf
    assert halving.measure_loss_distance({"a": [math.nan]}, {"a": [math.nan]}) == 0
    # A loss that has come near zero is held against the first.
    assert halving.measure_loss_distance({"a": [1.0, 1e-9]}, {"a": [1.0, 2e-9]}) == pytest.approx(1e-6)
