"""The verdict on two recordings: what each difference is called, and what is no difference."""

import json
import math
import os
import random
import subprocess
import sys

import pytest
from recordings import losses, write

from torchport.cli import main
from torchport.compare import compare_recordings
from torchport.compare.printed import final_metrics
from torchport.report import render_comparison

CURVE = [2.3 * 0.97**step + 0.01 * math.sin(step) for step in range(120)]


@pytest.fixture
def record(tmp_path):
    """Makes a recording from losses, further events and printed text."""
    count = iter(range(100))

    def make(values, *events, **ending):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        return write(folder, [*events, *losses(values)], **ending)

    return make


def scaled(factor, start=0):
    return [loss * (factor if step >= start else 1) for step, loss in enumerate(CURVE)]


def codes(result):
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize(
    ("port", "holds"),
    [
        (CURVE, True),
        (scaled(1 + 9e-5), True),
        (scaled(1 + 2e-4), False),  # too much for the first 50 steps
        (scaled(1 + 2e-4, start=50), True),  # not for the rest
        (scaled(1 + 2e-2, start=50), False),
        (scaled(1 - 2e-2, start=119), False),
    ],
)
def test_step_by_step_bounds(record, port, holds):
    result = compare_recordings(record(CURVE), record(port))
    assert (result.data.verdict == "holds") is holds, result.data.reason
    assert codes(result) == ([] if holds else ["TP301"])


def test_the_first_differing_step_is_named(record):
    result = compare_recordings(record(CURVE), record(scaled(1.5, start=7)))
    assert result.findings[0].evidence["step"] == 7
    assert "from step 7 on" in result.findings[0].message


@pytest.mark.parametrize(
    ("dtype", "factor", "start", "holds"),
    [
        ("float32", 1.004, 0, False),
        # The means of so few steps would notice half of the loss: no word on the steps after the first.
        ("float16", 1.004, 0, None),
        ("float16", 1.03, 0, False),  # too much for the first steps
        ("float16", 1.03, 6, None),
        ("float16", 1.5, 6, False),
        ("bfloat16", 1.03, 0, None),
        ("bfloat16", 1.5, 50, False),
    ],
)
def test_half_precision_is_held_at_first_and_statistically(record, dtype, factor, start, holds):
    used = {"kind": "precision", "dtype": dtype}
    result = compare_recordings(record(CURVE, used), record(scaled(factor, start), used))
    assert result.data.verdict == ("undecided" if holds is None else "holds" if holds else "does not hold")
    assert render_comparison(result.data)


def test_nan_in_the_port_alone(record):
    result = compare_recordings(record(CURVE), record([*CURVE[:9], math.nan, *CURVE[10:]]))
    assert codes(result) == ["TP302"]
    assert "NaN at step 9" in result.findings[0].message
    assert result.data.verdict == "does not hold"
    assert "!" in render_comparison(result.data)
    json.loads(result.text())


def test_nan_in_both_is_the_originals_problem(record):
    curve = [*CURVE[:9], math.nan, math.nan]
    result = compare_recordings(record(curve), record(curve))
    assert result.data.verdict == "holds"
    assert "original's own loss" in result.findings[0].message


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("first", [0, 3, 60])
def test_what_is_not_finite_in_both_is_compared_up_to_there_or_not_said_to_agree(record, random, first):
    events = [{"kind": "random", "detail": "dropout"}] if random else []
    curve = [*CURVE[:first], *[math.nan] * 20]
    result = compare_recordings(record(curve, *events), record(curve, *events))
    enough = first > 0 if not random else first == 60
    assert result.data.verdict == ("holds" if enough else "undecided")
    assert ("TP304" in codes(result)) is not enough
    assert "TP302" in codes(result)
    wrong = [2 * loss for loss in curve]
    assert compare_recordings(record(curve, *events), record(wrong, *events)).data.verdict != "holds"


def test_numbers_of_steps(record):
    assert codes(compare_recordings(record(CURVE), record(CURVE[:100]))) == ["TP303"]


def test_weights_that_could_not_be_made_equal_are_a_warning(record):
    event = {"kind": "weights", "name": "module-0", "action": "mismatch", "detail": "shapes differ"}
    result = compare_recordings(record(CURVE), record(CURVE, event))
    assert codes(result) == ["TP305"]
    assert result.data.verdict == "holds"


def started(tensor="fc.weight", dtype="float32", difference=0.5):
    return {"kind": "start", "tensor": tensor, "dtype": dtype, "difference": difference}


def test_weights_that_two_runs_of_the_original_have_otherwise_are_not_compared(record):
    """A clock or os.urandom made them, or the generators of another machine; others are compared all the same."""
    control = record(CURVE, started("fc.weight", difference=3.0))
    result = compare_recordings(record(CURVE), record(CURVE, started("fc.weight", difference=2.0)), control=control)
    assert (codes(result), result.data.verdict) == ([], "holds")
    assert result.data.unchecked[0].startswith("the initial weights (of 1 tensors")
    port = record(CURVE, started("fc.weight", difference=2.0), started("last.bias"))
    result = compare_recordings(record(CURVE), port, control=control)
    assert codes(result) == ["TP305"] and "last.bias" in result.findings[0].message


@pytest.mark.parametrize(
    "event", [started(), started(difference="inf"), started("1.running_mean"), started("fc.bias", "bfloat16", 0.1)]
)
def test_a_port_that_starts_from_other_weights_does_not_hold(record, event):
    result = compare_recordings(record(CURVE), record(CURVE, event, started("last.bias", difference=0.01)))
    assert (codes(result), result.data.verdict) == (["TP305"], "does not hold")
    assert f"{event['tensor']} " in result.findings[0].message and "(1 more tensor too)" in result.findings[0].message


def test_rounding_is_no_other_start(record):
    small = [
        started(difference=1e-5),
        started(dtype="float16", difference=2e-3),
        started(dtype="bfloat16", difference=0.02),
    ]
    assert codes(compare_recordings(record(CURVE), record(CURVE, *small))) == []


def noisy(seed, scale=1.0, noise=0.15):
    draw = random.Random(seed)
    return [loss * scale * (1 + draw.gauss(0, noise)) for loss in CURVE]


DROPOUT = {"kind": "random", "detail": "dropout"}


@pytest.mark.parametrize("seed", range(20))
def test_chance_is_not_a_difference(record, seed):
    result = compare_recordings(record(noisy(seed), DROPOUT), record(noisy(seed + 1000), DROPOUT))
    assert result.data.method == "statistically"
    assert codes(result) == ["TP320"]
    assert result.data.verdict == "holds"


@pytest.mark.parametrize("seed", range(5))
def test_a_difference_shows_through_chance(record, seed):
    result = compare_recordings(record(noisy(seed), DROPOUT), record(noisy(seed + 1000, scale=1.5), DROPOUT))
    assert codes(result) == ["TP320", "TP301"]
    assert "  differs " in render_comparison(result.data)


def test_too_few_steps_for_statistics(record):
    result = compare_recordings(record(CURVE[:4], DROPOUT), record(CURVE[:4], DROPOUT))
    assert codes(result) == ["TP320", "TP304"]


def test_other_seeds_make_it_statistical(record):
    seeds = ({"kind": "seed", "of": "torch", "value": value} for value in "12")
    result = compare_recordings(*(record(CURVE, seed) for seed in seeds))
    assert result.data.method == "statistically"


@pytest.mark.parametrize(
    ("reference", "port", "holds"),
    [
        ("test accuracy 97.50 %", "test accuracy 97.10 %", True),
        ("test accuracy 97.50 %", "test accuracy 96.90 %", False),
        ("Acc@1: 0.975", "Acc@1: 0.971", True),
        ("Acc@1: 0.975", "Acc@1: 0.965", False),
        ("top acc 97.5", "top acc 97.1", True),
        ("top acc 97.5", "top acc 96.9", False),
        ("val_loss=0.5000", "val_loss=0.5040", True),
        ("val_loss=0.5000", "val_loss=0.5600", False),
        ("accuracy: 0.1\naccuracy: 0.9", "accuracy: 0.8\naccuracy: 0.9", True),  # the last one counts
        ("took 3.1 s, 812 images/s", "took 9.9 s, 15 images/s", True),  # not a metric of the model
        ("loss nan", "loss nan", True),
        ("loss 0.5", "loss nan", False),
    ],
)
def test_final_metrics(record, reference, port, holds):
    result = compare_recordings(record(CURVE, output=reference), record(CURVE, output=port))
    assert (result.data.verdict == "holds") is holds, result.data.reason
    assert codes(result) == ([] if holds else ["TP306"])


def test_metrics_of_a_usual_line():
    line = " * Epoch 2: train loss 0.0237, test loss 0.0417, test accuracy 99.17 % (9.1 s, 0.0 MiB)"
    found = {name: (metric.value, metric.percent) for name, metric in final_metrics(line).items()}
    assert found == {"train loss": (0.0237, False), "test loss": (0.0417, False), "test accuracy": (99.17, True)}


def test_the_command_works_without_torch(record, tmp_path):
    first, second = record(CURVE), record(scaled(2.0))
    code = "import sys; sys.modules['torch'] = None; from torchport.cli import main; sys.exit(main(sys.argv[1:]))"
    run = subprocess.run(
        [sys.executable, "-c", code, "compare", first.path, second.path, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert json.loads(run.stdout)["data"]["verdict"] == "does not hold"


def test_the_command_prints_verdict_and_usage_errors(record, tmp_path, capsys):
    first = record(CURVE)
    assert main(["compare", str(first.path), str(first.path)]) == 0
    assert "holds (" in capsys.readouterr().out
    assert main(["compare", str(first.path), str(tmp_path)]) == 2
    assert "is not a recording" in capsys.readouterr().err


@pytest.mark.parametrize(("encoding", "bars"), [("ascii", "#####"), ("utf-8", "█████")])
def test_curves_print_on_any_terminal(record, encoding, bars):
    path = record([5.0] * 5 + [1.0]).path
    run = subprocess.run(
        [sys.executable, "-m", "torchport", "compare", path, path],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert bars in run.stdout.decode(encoding)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "two recordings are compared, or --model is given"),
        (["a"], "two recordings are compared, or --model is given"),
        (["a", "b", "--device", "cpu"], "--device is for --model"),
        (["--model", "net"], "--model net names no function"),
        (["a", "--model", "net:make"], "a recording is of no use beside --model"),
        (["--model", "net:make", "--csv", "x"], "--csv is of no use beside --model"),
    ],
)
def test_a_model_or_two_recordings(words, said, capsys):
    assert main(["compare", *words]) == 2
    assert said in capsys.readouterr().err
