"""Invariants that the ranks of a job have in common, and losses that stop being numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import recordings

from torchport.cli import main
from torchport.compare.invariants import DATA, LIVE, NUMBERS, RATES, REPLICAS, judge_invariants
from torchport.record.invariants import RULES
from torchport.report import render_invariants

NAMES = ["norm.weight", "bias.weight", "shard.weight"]


def rank(norms, norms_before=(8.0, 3.0, 1.0), batches=(), replica=False, values=(1.0, 0.5, 0.25), local=8):
    """The events of one rank: `norms` by step and parameter, `batches` by place and visit."""
    yield {"kind": "parameters", "optimizer": 0, "step": 0, "names": NAMES, "sizes": [8, 8, 8]}
    yield {"kind": "initial", "optimizer": 0, "norms": list(norms_before), "sizes": [8, 8, local]}
    for site, checksums in dict(batches).items():
        for visit, checksum in enumerate(checksums):
            numbers = {"checksum": str(checksum or ""), "size": 64, "sum": 1.0, "norm": 1.0}
            yield {"kind": "upload", "site": site, "visit": visit, **numbers}
    for step, row in enumerate(norms):
        yield {"kind": "norms", "optimizer": 0, "step": step, "gradient": row, "norm": row, "change": row}
    yield from recordings.losses(values)
    if replica:
        yield {"kind": "replicated", "module": "Net"}


def write(folder, *ranks):
    folder.mkdir(exist_ok=True)
    return recordings.write(folder, *ranks)


def say(folder, *ranks):
    return [finding.message for finding in judge_invariants(write(folder, *ranks)).findings]


def test_a_parameter_that_parts_while_others_stay_equal_is_named(tmp_path):
    (message,) = say(
        tmp_path, rank([[1.0, 2.0, 5.0], [1.1, 2.1, 5.0]]), rank([[1.0, 2.0, 6.0], [1.2, 2.1, 6.0]], (8.0, 3.0, 2.0))
    )
    assert message.startswith(
        "replicas are equal: norm.weight equal on all ranks at the beginning, and not from step 1"
    )


@pytest.mark.parametrize(
    ("norms", "norms_before"),
    [
        ([[1.0, 2.0, 6.0]], (8.0, 3.0, 2.0)),  # replicas that stay equal, and a shard
        ([[4.0, 5.0, 6.0]], (8.0, 3.0, 1.0)),  # everything parts at once: each rank has a model of its own
        ([[1.0, 2.0, 6.0]], (8.0, 3.0, 0.0)),  # zeros are equal at the beginning, shard or not
        ([["nan", 2.0, 5.0]], (8.0, 3.0, 1.0)),
    ],
)
def test_shards_and_models_of_their_own_are_no_replicas(tmp_path, norms, norms_before):
    other = (8.0, 3.0, 0.0 if not norms_before[2] else 1.0)
    assert not say(tmp_path, rank([[1.0, 2.0, 5.0]], other), rank(norms, norms_before))


def test_replicas_that_part_together_after_some_steps_are_named(tmp_path):
    first, second = [[[1.0, 2.0, 5.0]] * 4 + [[row, row, row]] for row in (1.5, 1.6)]
    (message,) = say(tmp_path, rank(first), rank(second))
    assert (
        "bias.weight and 2 more equal on all ranks at the beginning, and not from step 4 on, after 4 steps" in message
    )


def test_replicas_that_part_at_once_are_named_where_they_are_wrapped(tmp_path):
    ranks = [rank([[value, value, value]], replica=True) for value in (1.0, 1.1)]
    (message,) = say(tmp_path, *ranks)
    assert "and not from step 0 on, as all others: the gradients are not reduced" in message


@pytest.mark.parametrize(("rates", "named"), [([0.1], True), ([0.0], False), ([0.1, 0.2, 0.3, 0.4, 0.5], False)])
def test_an_optimizer_that_changes_nothing_is_named(tmp_path, rates, named):
    def run():
        yield {"kind": "parameters", "optimizer": 0, "step": 0, "names": NAMES, "sizes": [8, 8, 8]}
        for step in range(8):
            if step < len(rates):
                yield {"kind": "settings", "optimizer": 0, "step": step, "groups": [{"lr": rates[step]}]}
            change = [1.0 if step < 2 else 0.0, None, 0.0]
            gradient = [1.0, None, 2.0]
            yield {"kind": "norms", "optimizer": 0, "step": step, "gradient": gradient, "norm": [1.0], "change": change}
        yield from recordings.losses([1.0] * 8)

    said = say(tmp_path, run())
    assert len(said) == named
    assert not named or "optimizer 0 changes no parameter from step 2 on" in said[0]


def test_parts_that_begin_alike_are_no_replicas(tmp_path):
    assert not say(tmp_path, rank([[1.0, 2.0, 5.0]], local=4), rank([[1.0, 2.0, 6.0]], local=4))


def test_the_same_batches_on_all_ranks_are_named(tmp_path):
    same = {"train.py:9": [1, 2, 3, 4]}
    (message,) = say(tmp_path, *(rank([[1.0, 2.0, 5.0]], batches=same, replica=True) for _ in range(2)))
    assert message.startswith("ranks see different data: all 2 ranks have the same batch at each of 4 visits")


@pytest.mark.parametrize(
    ("first", "second", "replica"),
    [
        ({"train.py:9": [1, 2, 3]}, {"train.py:9": [4, 5, 6]}, True),
        ({"train.py:9": [1, 1, 1]}, {"train.py:9": [1, 1, 1]}, True),  # a constant
        ({"a.py:9": [1, 2, 3], "a.py:8": [1, 2, 3]}, {"a.py:9": [1, 2, 3], "a.py:8": [4, 5, 6]}, True),  # of each step
        ({"train.py:9": [1, 2]}, {"train.py:9": [1, 2]}, True),  # too few
        ({"train.py:9": [0, 0, 0]}, {"train.py:9": [0, 0, 0]}, True),  # on the device already
        ({"train.py:9": [1, 2, 3]}, {"train.py:9": [1, 2, 3]}, False),  # tensor parallel: no replica
    ],
)
def test_batches_that_may_be_equal_are_not_named(tmp_path, first, second, replica):
    ranks = [rank([[1.0, 2.0, 5.0]], batches=batches, replica=replica) for batches in (first, second)]
    assert not say(tmp_path, *ranks)


@pytest.mark.parametrize(
    ("first", "second", "step"),
    [
        ({0: 0.1, 3: 0.05}, {0: 0.1, 5: 0.05}, 3),
        ({0: 0.1, 3: 0.05}, {0: 0.1, 3: 0.05}, None),
        ({0: 0.1}, {0: 0.2}, None),
    ],
)
def test_learning_rates_that_part_are_named(tmp_path, first, second, step):
    ranks = [
        [{"kind": "settings", "optimizer": 0, "step": at, "groups": [{"lr": rate}]} for at, rate in rates.items()]
        for rates in (first, second)
    ]
    said = say(tmp_path, *([*rank([[1.0, 2.0, 5.0]]), *settings] for settings in ranks))
    assert len(said) == (step is not None)
    assert step is None or f"other learning rates on each rank from step {step} on (0.05, 0.1)" in said[0]


def test_losses_that_stop_being_numbers_are_named(tmp_path):
    (message,) = say(tmp_path, rank([], values=(1.0, "nan", "nan", "nan", "nan")))
    assert message == "losses are numbers: the loss is nan from step 1 on"


@pytest.mark.parametrize("values", [(1.0, "nan", "nan", 1.0, "nan"), (1.0, "inf", "inf", "inf", "inf")])
def test_a_loss_that_a_scaler_takes_care_of_is_not_named(tmp_path, values):
    scaler = {"kind": "scaler", "step": 0, "scale": 2.0**16, "skipped": True}
    assert not say(tmp_path, [*rank([], values=values), scaler])


def test_the_words_say_how_far_they_reach(tmp_path, capsys):
    watched = [
        {"kind": "watched", "name": "weights move", "judged": 3},
        {"kind": "watched", "name": "gradients are clipped before the step", "judged": 0},
    ]
    result = judge_invariants(write(tmp_path / "a", [*rank([[1.0, 2.0, 5.0]]), *watched]))
    text = " ".join(render_invariants(result, color=False).split())
    assert "no invariant of training is broken as far as it was judged" in text
    assert "judged in 3 steps: weights move, losses are numbers" in text
    assert "not met in this run: gradients are clipped before the step, replicas are equal" in text
    assert "not watched from inside" not in text
    write(tmp_path / "b", rank([[1.0, 2.0, 5.0]]))
    assert main(["record", "invariants", str(tmp_path / "b")]) == 0
    assert "not watched from inside: `torchport run --invariants` does that" in capsys.readouterr().out
    assert main(["record", "invariants", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["judged"]["weights move"] == 3


def test_the_page_has_each_invariant():
    page = Path(__file__).parents[2].joinpath("docs/invariants.md").read_text()
    listed = re.findall(r"^\| ([a-z][^|]*[a-z]) \|", page, re.MULTILINE)
    assert listed[1:] == [*(rule.name for rule in RULES), REPLICAS, DATA, RATES, NUMBERS, LIVE]
