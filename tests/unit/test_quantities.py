"""What is recorded of each step, on torch's CPU: right against float64, equal between equal runs, different where
something differs."""

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

RUNS = Path(__file__).with_name("data") / "quantity_runs.py"
LAYERS = ["0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"]
SIZES = [12000, 300, 90000, 300, 600, 2]
QUANTITIES = ("gradient", "norm", "change")


@pytest.fixture(scope="module")
def runs():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, RUNS], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def events(run, kind):
    return [event for event in run if event["kind"] == kind]


def test_two_equal_runs_have_the_same_quantities_to_the_bit(runs):
    kinds = ("norms", "parameters", "inputs", "upload", "settings")
    first, second = ([event for event in runs[name] if event["kind"] in kinds] for name in ("plain", "again"))
    assert first == second
    assert {event["kind"] for event in first} == set(kinds)


def test_quantities_are_those_of_float64(runs):
    measured = events(runs["oracle run"], "norms")
    assert [event["step"] for event in measured] == list(range(5))
    for event, oracle in zip(measured, runs["oracle"], strict=True):
        for name in QUANTITIES:
            assert event[name] == pytest.approx(oracle[name], rel=2e-6), name


def test_parameters_have_the_names_of_their_module(runs):
    (parameters,) = events(runs["plain"], "parameters")
    assert (parameters["names"], parameters["sizes"]) == (LAYERS, SIZES)
    assert (parameters["optimizer"], parameters["step"]) == (0, 0)


def differing(runs, name, quantity):
    """By step: the parameters whose quantity is another than in the plain run."""
    pairs = zip(events(runs["plain"], "norms"), events(runs[name], "norms"), strict=True)
    return [
        [index for index, (a, b) in enumerate(zip(one[quantity], other[quantity], strict=True)) if a != b]
        for one, other in pairs
    ]


def test_one_percent_of_one_gradient_shows(runs):
    assert differing(runs, "gradient", "gradient")[:3] == [[], [], [0]]
    one, other = (events(runs[name], "norms")[2]["gradient"][0] for name in ("plain", "gradient"))
    assert other / one == pytest.approx(1.01, rel=1e-5)


def test_five_percent_of_an_update_show(runs):
    assert differing(runs, "update", "gradient")[:3] == [[], [], []]
    assert differing(runs, "update", "change")[:3] == [[], [], list(range(6))]
    one, other = (events(runs[name], "norms")[2]["change"] for name in ("plain", "update"))
    assert other == pytest.approx([1.05 * value for value in one], rel=1e-3)


def test_the_order_of_batches_shows(runs):
    assert differing(runs, "order", "gradient")[2] == list(range(6))
    for kind, field in (("inputs", "norms"), ("upload", "checksum")):
        one, other = ([event[field] for event in events(runs[name], kind)] for name in ("plain", "order"))
        assert [a == b for a, b in zip(one, other, strict=True)][-5:] == [True, True, False, False, True]
        assert one[-5:] != other[-5:]


def test_a_step_left_out_shows(runs):
    assert len(events(runs["plain"], "norms")) == 5
    assert len(events(runs["skipped"], "norms")) == 4
    assert events(runs["skipped"], "norms")[:2] == events(runs["plain"], "norms")[:2]


def test_half_precision_is_accumulated_in_float32(runs):
    for name, error in runs["accuracy"]["errors"].items():
        assert error < 2e-6, name
    assert len(events(runs["half"], "norms")) == 5
    assert runs["accuracy"]["half is exact"] == [2.5, pytest.approx(math.sqrt(5))]


def test_a_sample_is_the_same_elements_whatever_the_layout(runs):
    found = runs["accuracy"]
    taken = found["taken"]
    assert 900 <= len(taken) <= 1000
    assert taken == list(range(0, 64 * 49 * 100, taken[1]))
    assert all(size % taken[1] for size in (64, 49, 100))
    assert found["same elements"] and found["view"]
    assert 900 <= found["expanded"][0] <= 1000 and found["expanded"][1] <= 99
    assert found["other layout"] == [None], "a tensor more or less is another optimizer"


def test_what_cannot_be_measured_is_null(runs):
    by_optimizer = [events_ for number in range(3) if (events_ := of_optimizer(runs["hostile"], number))]
    sparse, dense, expanded = by_optimizer
    assert sparse[0]["gradient"] == [None] and sparse[0]["norm"][0] > 0
    plain, unused, empty, wave, meta, last, flat, single = range(8)
    for event in dense:
        for quantity in QUANTITIES:
            nulls = {index for index, value in enumerate(event[quantity]) if value is None}
            without = {empty, wave, meta} | ({unused} if quantity == "gradient" else set())
            assert nulls == without, quantity
        assert event["gradient"][plain] == 2 and event["change"][plain] == pytest.approx(0.2)
        assert event["change"][unused] == 0
        assert event["gradient"][last] > 0 and event["gradient"][flat] > 0 and event["change"][single] > 0
    assert expanded[0]["gradient"] == [None] and expanded[0]["change"] == [0]


def of_optimizer(run, number):
    return [event for event in events(run, "norms") if event["optimizer"] == number]


def test_a_closure_makes_its_own_gradient(runs):
    (measured,) = events(runs["closure"], "norms")
    # two iterations on x^2, the last gradient is at the point where the step ended or the one before it
    assert 0 < measured["gradient"][0] < 10
    (parameters,) = events(runs["closure"], "parameters")
    assert parameters["names"] == ["weight"]


def test_without_an_optimizer_leaves_are_measured(runs):
    (parameters,) = events(runs["by hand"], "parameters")
    assert (parameters["optimizer"], parameters["names"]) == (-1, ["bias", "leaf (2,)", "weight"])
    measured = events(runs["by hand"], "norms")
    assert [event["step"] for event in measured] == [0, 1, 2]
    assert measured[0]["change"] == [None, None, None]
    for before, after in itertools.pairwise(measured):
        assert after["change"][0] == pytest.approx(0.1 * before["gradient"][0], rel=1e-4)
        assert after["change"][1] == 0
        assert after["change"][2] == pytest.approx(0.1 * before["gradient"][2], rel=1e-4)


def test_results_of_autograd_grad_are_measured(runs):
    (parameters,) = events(runs["gradients"], "parameters")
    assert (parameters["names"], parameters["sizes"]) == (["grad 0", "grad 1"], [3, 0])
    for event in events(runs["gradients"], "norms"):
        assert event["gradient"] == [pytest.approx(math.sqrt(12)), None]
        assert event["norm"] == event["change"] == [None, None]


def test_a_long_run_has_totals(runs):
    measured = events(runs["long"], "norms")
    assert [len(event["gradient"]) for event in measured] == [2] * 200 + [1] * 3
    assert measured[199]["gradient"] == [5, 12]
    assert measured[200]["gradient"] == [13]
    _, last = events(runs["long"], "parameters")
    assert (last["step"], last["names"], last["sizes"]) == (200, ["all parameters"], [3])


def test_inputs_are_those_of_all_steps(runs):
    assert [event["step"] for event in events(runs["plain"], "inputs")] == list(range(5))
    assert all(len(event["norms"]) == 1 for event in events(runs["plain"], "inputs"))
    found = events(runs["long"], "inputs")
    assert [event["step"] for event in found] == list(range(203))
    assert all(event["norms"] == [5, 2] for event in found), "named arguments too"


def test_a_compiled_optimizer_is_measured_as_any(runs):
    eager, compiled = (runs[name] for name in ("compiled ", "compiled eager"))
    for kind in ("norms", "inputs", "loss"):
        assert len(events(compiled, kind)) == 5
    for one, other in zip(events(eager, "norms"), events(compiled, "norms"), strict=True):
        for quantity in QUANTITIES:
            assert other[quantity] == pytest.approx(one[quantity], rel=1e-5)


def test_the_loss_scale_and_left_out_steps(runs):
    assert [(event["step"], event["scale"], event["skipped"]) for event in events(runs["scaled"], "scaler")] == [
        (0, 8.0, False),
        (1, 8.0, True),
        (1, 4.0, False),
        (2, 4.0, False),
    ]
    losses = [float(event["value"]) for event in events(runs["scaled"], "loss")]
    assert losses[1] == math.inf
    assert losses[::2] + losses[3:] == pytest.approx([2.0, 1.8, 1.6])
    regions = [(event["dtype"], event["enabled"]) for event in events(runs["scaled"], "autocast")]
    assert regions == [("float16", True), ("float16", False)]


def test_every_way_to_the_device_is_an_upload(runs):
    found = events(runs["uploads"], "upload")
    assert len(found) == 14, "seven calls, twice"
    assert [event["visit"] for event in found] == [0] * 7 + [1] * 7
    assert len({event["site"] for event in found}) == 7
    first, second = found[:7], found[7:]
    assert [a["checksum"] == b["checksum"] for a, b in zip(first, second, strict=True)] == [
        True,
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert {event["checksum"] for event in first[:4]} | {first[5]["checksum"]} == {first[0]["checksum"]}
    assert first[0]["norm"] == pytest.approx(math.sqrt(506))
    assert first[0]["sum"] == pytest.approx(sum((i + 1) * i for i in range(12)) / 12)
    assert (first[6]["size"], first[6]["sum"]) == (0, 0)


def test_a_place_is_looked_at_so_often(runs):
    assert [event["visit"] for event in events(runs["visits"], "upload")] == list(range(200))


def test_everything_is_put_back(runs):
    assert runs["undone"] is True


def test_a_scripted_function_and_a_default_device_are_left_alone(runs):
    assert runs["script"] == []


def test_nothing_is_read_inside_a_transform(runs):
    assert [event["kind"] for event in runs["transform"]] == ["loss", "parameters", "norms"]


@pytest.mark.parametrize(("name", "steps"), [("each sample", 2), ("each sample compiled", 3)])
def test_gradients_by_transforms_are_steps(runs, name, steps):
    """Of the outermost transform alone; a compiler still sees one graph."""
    losses = events(runs[name], "loss")
    assert [event["by"] for event in losses] == ["grad"] * steps
    assert losses[0]["value"] == pytest.approx(math.sqrt(9 + 25))
    first, *_, last = events(runs[name], "norms")
    assert first["gradient"] == pytest.approx([math.sqrt(9 + 25)])
    assert last["gradient"] == pytest.approx([10.0, 25.0])


def test_parameters_of_no_module_have_the_names_of_variables(runs):
    assert runs["names"][4:] == ["weights['w'][0]", "weights['w'][1]", "scale", "head.weight", "head.bias", "weight"]
