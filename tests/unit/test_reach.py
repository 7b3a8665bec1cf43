"""How far a comparison reaches: which steps a word may rest on, and how that is said."""

import pytest

from torchport.compare.reach import Reach, format_ranges, report_short_reach
from torchport.results.comparison import Steps

STEPS = Steps("optimizer step", 70, 70)


def reach(single, means=None, steps=70):
    return Reach(steps, frozenset(single), means or {})


@pytest.mark.parametrize(
    ("single", "means", "why"),
    [
        (range(20), {}, "the rest is not compared"),
        (range(55), {}, "under four fifths"),
        (range(63), {}, "none of the last tenth"),
        (range(40), dict.fromkeys(range(40, 70), 0.2), "weak means"),
        ([], dict.fromkeys(range(70), 0.5), "nothing but weak means"),
    ],
)
def test_too_few_steps_give_no_word(single, means, why):
    (finding,) = report_short_reach(reach(single, means), STEPS)
    assert finding.code == "TP364", why


@pytest.mark.parametrize(
    ("single", "means"), [(range(70), {}), (range(14, 70), {}), (range(40), dict.fromkeys(range(40, 70), 0.03))]
)
def test_enough_steps_do(single, means):
    assert list(report_short_reach(reach(single, means), STEPS)) == []


def test_the_sentence_names_the_steps():
    assert reach(range(70)).describe("optimizer step") == "70 optimizer steps compared one by one"
    mixed = reach(range(40), dict.fromkeys(range(40, 65), 0.03))
    assert mixed.describe("optimizer step") == (
        "70 optimizer steps: 40 compared one by one, 25 by means that would notice 3 % of the loss, 5 not compared"
    )
    assert reach([0], steps=1).describe("backward pass") == "1 backward pass compared one by one"
    assert format_ranges([1, 2, 3, 7, 9, 10]) == "1 to 3, 7, 9 to 10"
