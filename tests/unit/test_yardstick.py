"""What rounding does to the original is allowed to the port, and no more; what was put in on purpose is noticed."""

import dataclasses
import functools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from recordings import SITE, write
from training_events import MADE, NAMES, faulty, judge_in, noise, run

from torchport.compare import reach, tolerance, yardstick
from torchport.compare.series import CHANGE, GRADIENT, LOSS, Series, collect_series
from torchport.compare.settings import scales_equal
from torchport.port import controls, left
from torchport.port.runs import _list_cards
from torchport.record import states


@pytest.fixture
def judge(tmp_path):
    return functools.partial(judge_in, tmp_path)


# --- what must be refused


def test_a_gradient_that_differs_although_the_losses_agree(judge):
    data = judge(run(device="npu", gradient=lambda step, number: 1.01 if (step, number) == (3, 1) else 1.0))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP354"])
    assert "the gradient of fc1.bias differs from step 3 on: 0.101 against 0.1" in data["reason"]
    assert data["first"] == [
        {
            "step": 3,
            "kind": "gradient",
            "name": "fc1.bias",
            "reference": 0.1,
            "port": pytest.approx(0.101),
            "error": pytest.approx(1e-2),
            "noise": pytest.approx(1e-7, rel=1e-3),
            "allowed": 1e-4,
        }
    ]


def test_an_update_that_differs_although_the_gradients_agree(judge):
    data = judge(run(device="npu", change=lambda step, number: 1.05 if step == 17 else 1.0))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP354"])
    assert "the change of fc1.weight, and 2 more differs from step 17 on" in data["reason"]


def test_a_parameter_without_a_gradient(judge):
    data = judge(run(device="npu", skip=(1,)))
    assert data["verdict"] == "does not hold"
    assert "gradient of fc1.bias differs from step 0 on: there is none" in data["reason"]


def test_a_loss_that_is_further_away_than_rounding(judge):
    data = judge(run(device="npu", loss=noise(3e-5)))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP301"])


def test_a_port_that_scatters_does_not_widen_its_own_bounds(judge):
    wild = noise(1e-3)
    assert judge(run(device="npu", loss=wild, gradient=wild, change=wild))["verdict"] == "does not hold"


def test_other_parameters(judge):
    port = [
        event | {"names": NAMES[:2], "sizes": [100, 10]} if event["kind"] == "parameters" else event
        for event in run(device="npu")
    ]
    data = judge(iter(port))
    assert "TP355" in data["codes"]
    assert "optimizer 0 has 2 parameters of 110 numbers" in data["reason"]


@pytest.mark.parametrize(
    ("theirs", "ours", "says"),
    [
        ([], [{"kind": "precision", "dtype": "bfloat16"}], "the port computes in bfloat16"),
        (
            [],
            [{"kind": "autocast", "site": "a.py:3", "dtype": "float16", "enabled": False}],
            "only the port has autocast switched off at a.py:3",
        ),
        (
            [{"kind": "autocast", "site": "a.py:3", "dtype": "float16", "enabled": True}],
            [{"kind": "autocast", "site": "", "dtype": "bfloat16", "enabled": True}],
            "only the port has autocast to bfloat16\n",
        ),
        (
            [{"kind": "scaler", "step": 0, "scale": 65536.0, "skipped": True}],
            [{"kind": "scaler", "step": 0, "scale": 65536.0, "skipped": False}],
            "update 0 of the GradScaler the port's scale is 65536, the original's 65536, and the step is skipped",
        ),
        ([{"kind": "scaler", "step": 0, "scale": 65536.0, "skipped": False}], [], "only the original scales the loss"),
    ],
)
def test_another_precision_or_scale(judge, theirs, ours, says):
    data = judge(run(*ours, device="npu"), reference=run(*theirs), control=run(*MADE, *theirs))
    assert data["verdict"] == "does not hold"
    assert says in data["reason"] + "\n"


@pytest.mark.parametrize(
    ("asked", "given", "says"),
    [
        (["cuda"] * 3, ["npu", "cpu", "npu"], f"{NAMES[1]} of the 3 parameters of optimizer 0 are on the CPU"),
        (["cuda"] * 3, ["cpu", "cpu", "npu"], f"{NAMES[0]} and 1 more of the 3 parameters"),
        (["cuda", "cpu", "cuda"], ["npu", "cpu", "npu"], ""),  # the original's own
        (["cuda"] * 3, ["npu"] * 3, ""),
        ([], ["cpu"] * 3, ""),  # an older recording
    ],
)
def test_a_part_of_the_model_on_the_host(judge, asked, given, says):
    def placed(events, devices):
        return [event | {"devices": devices} if event["kind"] == "parameters" else event for event in events]

    data = judge(placed(run(device="npu"), given), reference=placed(run(), asked))
    assert ("TP345" in data["codes"]) == bool(says)
    assert says in data["reason"]


@pytest.mark.parametrize(
    ("cuda", "cpu", "left"),
    [
        (["queue", "body.weight"], ["queue"], "queue of"),
        (["queue", "body.weight"], ["queue", "body.weight", "x"], "queue and 1 more of"),
        ([], ["queue"], ""),
        (["queue"], [], ""),
    ],
)
def test_a_module_without_an_optimizer_on_the_host(judge, cuda, cpu, left):
    """A teacher, or the queue of a contrastive loss: the numbers are the same wherever it is."""
    asked = {"kind": "placed", "site": "train.py:9 Net", "cuda": cuda, "cpu": []}
    data = judge(run(asked | {"cuda": [], "cpu": cpu}, device="npu"), reference=run(asked))
    assert (data["verdict"], data["codes"]) == (("does not hold", ["TP345"]) if left else ("holds", []))
    assert (
        data["reason"].startswith(f"{left} the module called at train.py:9 Net are on the CPU in the port") or not left
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_a_region_without_a_place_is_one_of_its_kind(judge, swapped):
    region = {"kind": "autocast", "dtype": "bfloat16", "enabled": True}
    first = [
        region | {"site": "a.py:3"},
        region | {"site": "a.py:9"},
    ]  # the second is entered again in the backward pass
    second = [region | {"site": "a.py:3"}, region | {"site": ""}]
    theirs, ours = (second, first) if swapped else (first, second)
    data = judge(run(*ours, device="npu"), reference=run(*theirs), control=run(*MADE, *theirs))
    assert "TP355" not in data["codes"], data["reason"]


@pytest.mark.parametrize("values", [[1.0, -3.0], [2.0, 4.0]], ids=["order", "content"])
def test_other_data(judge, values):
    def uploads(sums):
        return [
            {
                "kind": "upload",
                "site": "train.py:9",
                "visit": visit,
                "size": 8,
                "checksum": str(one),
                "sum": one,
                "norm": 2.0,
            }
            for visit, one in enumerate(sums)
        ]

    data = judge(run(*uploads(values), device="npu"), reference=run(*uploads([1.0, 3.0])))
    assert data["verdict"] == "does not hold"
    assert "data that are copied to the device at train.py:9" in data["reason"]


@pytest.mark.parametrize(
    ("control", "name"),
    [
        (faulty(update=1e-6), "5 % of one update (step 6)"),
        (faulty(gradient=1e-6), "1 % of one layer's gradient (fc2.weight, step 12)"),
        (faulty(sample=1e-7), "one sample of the batch replaced (step 19)"),
    ],
    ids=["update", "gradient", "sample"],
)
def test_a_fault_that_goes_unnoticed_leaves_it_open(judge, control, name):
    data = judge(run(device="npu"), control)
    assert data["verdict"] == "undecided"
    assert "TP356" in data["codes"]
    assert any(f"would not notice {name}" in text for text in [data["reason"]]) or data["codes"].count("TP356") > 1


def test_a_fault_that_drowns_in_noise_leaves_it_open_where_the_port_is_as_far_away(judge):
    data = judge(run(device="npu", gradient=noise(4e-3)), faulty(size=5e-3))
    assert data["verdict"] == "undecided"
    assert "would not notice 1 % of one layer's gradient" in data["reason"]


def test_a_fault_that_changes_nothing_is_not_noticed(judge):
    unchanged = 1 / noise(5e-3)(12, 2) - 1  # rounding takes the fault back
    data = judge(run(device="npu"), faulty(size=5e-3, gradient=unchanged))
    row = data["controls"]["rows"][1]
    assert all(one["error"] > 0 for one in row["noticed"])
    assert "would not notice 1 % of one layer's gradient" in data["reason"]


def test_a_fault_is_not_taken_for_rounding(judge):
    """Else the faults themselves would widen the bounds of the steps after them."""
    data = judge(run(device="npu", gradient=lambda step, number: 1.005 if step == 15 and number == 2 else 1.0))
    assert data["verdict"] == "does not hold"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda step: 4e-3 * (step == 15),  # larger than an activation moves a gradient
        lambda step: 5e-4 * (step >= 12),  # in too many steps
        lambda step: 5e-4 * (step in (4, 9, 14)),
        lambda step: 5e-4 * (step in (18, 19)) + 5e-4 * (step == 17),
    ],
    ids=["large", "lasting", "often", "in a row"],
)
def test_a_small_fault_is_not_taken_for_a_rare_rounding(judge, wrong):
    data = judge(run(device="npu", gradient=lambda step, number: 1 + wrong(step) * (number == 2)))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP354"])


def test_chance_notices_no_small_fault(judge):
    chance = {"kind": "random", "detail": "dropout at train.py:7 draws numbers that the other run cannot repeat"}
    data = judge(run(chance, device="npu"), reference=run(chance))
    assert data["verdict"] == "undecided"
    assert data["codes"].count("TP356") == 3


# --- what may pass


def test_a_value_that_may_be_anything_is_not_counted_as_compared(judge):
    """A bias before a BatchNorm: its gradient is rounding alone."""
    rounding = run(
        *MADE,
        gradient=lambda step, number: 1 + (0.4 * (-1) ** step if number == 1 else 0.01 * (step == 12 and number == 2)),
        change=lambda step, number: 1 + 0.05 * (step == 6) + 0.02 * (step == 19),
        loss=lambda step: 1 + 0.02 * (step == 19),
    )
    data = judge(run(device="npu"), rounding)
    assert data["verdict"] == "holds", data["reason"]
    (gradients,) = [row for row in data["quantities"] if row["kind"] == "gradient"]
    assert (gradients["compared"], gradients["allowed"] < 1) == (40, True)
    assert data["unchecked"] == ["the gradients of fc1.bias (they are rounding alone)"]


@pytest.mark.parametrize("steps", [(15,), (7, 8), (3, 19)], ids=str)
def test_a_step_in_which_rounding_moves_an_activation_across_a_relu(judge, steps):
    moved = lambda step, number: 1 + 2e-3 * (step in steps and number == 2)  # noqa: E731
    data = judge(run(device="npu", gradient=moved))
    assert (data["verdict"], data["codes"]) == ("holds", []), data["reason"]
    (said,) = data["unchecked"]
    assert said.startswith("faults below 0.3 % that are in steps ")
    assert "alone (fc2.weight: they differ there" in said


@pytest.mark.parametrize(
    ("kind", "ours", "error"),
    [(GRADIENT, -4e-7, 0.0), (CHANGE, 9e-7, 0.0), (GRADIENT, 1e-4, 100.0), (GRADIENT, 3e-6, 2.9), (LOSS, 6e-7, 0.5)],
)
def test_gradients_and_updates_that_do_not_move_the_model_are_equal(kind, ours, error):
    """A bias before a BatchNorm: of a gradient of 1, it has 1e-7 or -4e-7, which is rounding."""
    reference, port = (Series(kind, "fc1.bias", [0], [value], [1e-6]) for value in (1e-7, ours))
    assert yardstick.compute_relative_errors(reference, port) == [pytest.approx(error, rel=1e-2)]


@pytest.mark.parametrize(
    ("gradient", "ours", "equal"),
    [(1e-8, 3e-6, True), (1e-8, 9e-5, False), (0.0, 3e-6, False), (1e-3, 3e-6, False), ("NaN", 3e-6, False)],
    ids=["rounding", "too large", "zero", "a gradient", "no number"],
)
def test_updates_of_a_gradient_that_is_rounding(gradient, ours, equal):
    """The bias of an attention's keys under AdamW; of a gradient of zero, weight decay alone makes the update."""

    def series(change):
        events = [
            {"kind": "parameters", "optimizer": 0, "names": ["to_k.bias", "to_k.weight"]},
            {"kind": "norms", "optimizer": 0, "step": 0, "gradient": [gradient, 1.0], "change": [change, 1e-2]},
        ]
        process = SimpleNamespace(events=events, of_kind=lambda kind: [one for one in events if one["kind"] == kind])
        return collect_series(process)[CHANGE, "optimizer 0.0", 0]

    (error,) = yardstick.compute_relative_errors(series(2e-6), series(ours))
    assert (error == 0) is equal


def test_equal_runs_and_what_they_would_have_noticed(judge):
    data = judge(run(device="npu"))
    assert (data["verdict"], data["codes"]) == ("holds", [])
    assert data["reason"] == (
        "20 optimizer steps compared one by one, float32; would have noticed 5 % of one update, 1 % of one layer's "
        "gradient and one sample of the batch replaced"
    )
    assert [row["noticed"][0]["kind"] for row in data["controls"]["rows"][:2]] == ["change", "gradient"]
    assert {one["kind"] for one in data["controls"]["rows"][2]["noticed"]} == {"loss", "gradient", "change"}
    assert data["first"] == []
    assert [(row["kind"], row["compared"]) for row in data["quantities"]] == [
        ("loss", 20),
        ("gradient", 60),
        ("change", 60),
    ]
    assert data["yardstick"]["steps"] == 20
    assert data["yardstick"]["spread"]["gradient"] == pytest.approx(1e-7, rel=1e-3)


def test_a_port_that_is_closer_than_noise_rules_the_fault_out(judge):
    data = judge(run(device="npu", gradient=noise(1e-3)), faulty(size=5e-3, sample=0.5))
    assert data["verdict"] == "holds", data["reason"]
    (row,) = data["controls"]["rows"][1]["noticed"]
    assert row["allowed"] == pytest.approx(4e-3, rel=1e-2)


def test_rounding_within_the_yardstick(judge):
    rounding = noise(1e-5)
    data = judge(run(device="npu", loss=rounding, gradient=rounding, change=rounding), faulty(1e-6))
    assert (data["verdict"], data["codes"]) == ("holds", [])


def test_rounding_that_grows_on_after_the_control_run(judge):
    grown = noise(1e-7, 1.2)
    reference = run(steps=40)
    data = judge(run(device="npu", loss=grown, steps=40), faulty(1e-7, 1.2), reference=reference)
    assert (data["verdict"], data["codes"]) == ("holds", [])
    (curve,) = data["curves"]
    assert all(after >= before for before, after in zip(curve["allowed"], curve["allowed"][1:], strict=False))


def test_a_difference_after_the_control_run(judge):
    data = judge(run(device="npu", loss=lambda step: 1 + 1e-3 * (step >= 30), steps=40), reference=run(steps=40))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP301"])


def test_copies_of_other_number_are_not_the_same_copies(judge):
    copies = [
        {"kind": "upload", "site": "train.py:9", "visit": 0, "size": 8, "checksum": "1", "sum": value, "norm": 2.0}
        for value in (1.0, 2.0)
    ]
    assert judge(run(copies[1], device="npu"), reference=run(*copies))["verdict"] == "holds"


@pytest.mark.parametrize(
    ("values", "aside", "word"),
    [([3.0, 1.0], True, "holds"), ([3.0, 1.0], False, "does not hold"), ([3.0, 2.0], True, "does not hold")],
    ids=["order", "order of one thread", "content"],
)
def test_copies_of_several_threads_have_no_order(judge, values, aside, word):
    """transformers 5 loads weights by a pool of threads."""

    def copies(sums):
        row = {"kind": "upload", "site": "load.py:9", "size": 8, "norm": 2.0} | ({"aside": True} if aside else {})
        return [row | {"visit": visit, "checksum": str(one), "sum": one} for visit, one in enumerate(sums)]

    control = [*faulty(), *copies([1.0, 3.0])]
    data = judge(run(*copies(values), device="npu"), control=control, reference=run(*copies([1.0, 3.0])))
    assert data["verdict"] == word, data["reason"]


def test_what_is_on_the_device_already_is_no_copy(judge):
    def copies(*checksums):
        return [
            {
                "kind": "upload",
                "site": "train.py:9",
                "visit": visit,
                "size": 8,
                "checksum": text,
                "sum": len(text),
                "norm": 2.0,
            }
            for visit, text in enumerate(checksums)
        ]

    assert judge(run(*copies("abc", ""), device="npu"), reference=run(*copies("abc", "defg")))["verdict"] == "holds"


@pytest.mark.parametrize(("factor", "word"), [(1.0, "holds"), (1.01, "does not hold")])
def test_gradients_that_are_made_by_hand_are_compared_although_there_is_no_loss(judge, factor, word):
    """Evolution strategies; and an evaluation at the end, which is none of the steps."""
    end = {"kind": "call", "site": SITE, "value": 2.0, "device": "npu", "launches": 300, "elapsed": 9.0}

    def without_losses(events):
        return [event for event in events if event["kind"] != "loss"] + [end]

    gradient = lambda step, number: factor if step == 15 else 1.0  # noqa: E731
    port = without_losses(run(device="npu", gradient=gradient))
    data = judge(port, without_losses(faulty()), reference=without_losses(run()))
    assert data["verdict"] == word, data["reason"]
    assert data["covered"] == {"single": 20, "means": 0}
    assert data["evidence"][0]["steps_with"] == 20


def test_a_gradient_of_nothing_but_rounding(judge):
    """The bias before a batch norm: its gradient is zero but for rounding, in each run another number."""

    def rounding(sign):
        return lambda step, number: (1e-8 * (1 + sign * 0.9 * (-1) ** step)) if number == 1 else 1.0

    control = run(*MADE[:0], gradient=rounding(-1))
    data = judge(run(device="npu", gradient=rounding(1)), control, reference=run(gradient=rounding(0)))
    assert data["verdict"] == "holds"


def test_a_tolerance_that_a_person_gave(judge):
    data = judge(run(device="npu", loss=noise(1e-3), gradient=noise(4e-3)), given=2e-2)
    assert data["verdict"] == "undecided"  # 1 % of a gradient is no longer noticed then
    assert "TP301" not in data["codes"]
    assert data["tolerance"]["given"] == 2e-2


def test_without_faults_the_power_is_not_measured(judge):
    data = judge(run(device="npu"), run(loss=noise(1e-7)))
    assert data["verdict"] == "holds"
    assert "which faults it would notice was not measured" in data["reason"]


def test_a_chaotic_training_is_compared_from_the_originals_own_state(judge, tmp_path):
    from torchport.compare.judge import Forced

    wild, quiet = noise(1e-7, 4.0), noise(1e-7)
    reference, port, control = (
        write(_folder(tmp_path, name), events)
        for name, events in (
            ("forced-reference", run()),
            ("forced-npu", run(device="npu", loss=quiet)),
            ("forced-control", faulty()),
        )
    )
    forced = Forced(reference, port, control)
    data = judge(run(device="npu", loss=wild), faulty(1e-7, 4.0), forced=forced)
    assert data["verdict"] == "holds", data["reason"]
    assert data["yardstick"]["chaotic"] == 9
    assert data["forced"]["steps"] == 20
    assert "20 steps began from the original's own state" in data["reason"]
    port = write(
        _folder(tmp_path, "wrong"), run(device="npu", gradient=lambda step, number: 1.01 if step == 14 else 1.0)
    )
    (tmp_path / "again").mkdir()
    for name in ("reference", "npu", "control"):
        (tmp_path / name).rename(tmp_path / "again" / name)
    data = judge(run(device="npu", loss=wild), faulty(1e-7, 4.0), forced=Forced(reference, port, control))
    assert data["verdict"] == "does not hold"
    assert data["codes"] == ["TP354"]


def _folder(tmp_path, name):
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_bounds_are_numbers_or_infinite(judge):
    data = judge(run(device="npu"))
    assert all(bound > 0 for curve in data["curves"] for bound in curve["allowed"])
    assert all(math.isfinite(row["allowed"]) for row in data["quantities"])


def test_the_page_on_ports_has_these_numbers() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/port.md").read_text(encoding="utf-8").split())
    single, half = (tolerance.TOLERANCES[dtype].spread for dtype in ("float32", "float16"))
    assert tolerance.TOLERANCES["bfloat16"].spread == half
    assert f"The port may be {single:.0f} times as far in float32" in page
    assert f"{half:.0f} times in half precision" in page
    assert f"(its loss leaves 1e{math.log10(tolerance.CHAOTIC):.0f})" in page
    assert f"where that leaves {yardstick.MOST * 100:.0f} %, means of windows are compared" in page
    assert f"a third time, for at most {controls.MOST_STEPS} steps" in page
    assert f"once more for at most {states.MOST_STEPS} steps" in page
    assert f"the reference keeps its state every {states.EVERY} steps" in page
    assert f"kept, at most {states.MOST_KEPT >> 30} GiB" in page
    assert controls.MOST_STEPS == states.EVERY  # the control run is the yardstick of each window
    assert f"printed numbers differ by {text_of(left.TOLERANCE)} (tensors by {text_of(left.CLOSE)})" in page
    assert f"held to {tolerance.PRINTED_TIMES:g} times what is allowed to the last losses" in page
    assert f"from {text_of(left.CLOSEST)} to {text_of(left.CLOSE)}" in page
    assert reach.LEAST_SHARE == 0.8 and "If fewer than four fifths of the steps were compared" in page
    assert reach.LAST == 10 and "or none of the last tenth" in page
    assert f"means that would not notice {reach.STRONGEST * 100:.0f} % of the loss do not count" in page


def text_of(power: float) -> str:
    return f"1e{math.log10(power):.0f}"


def test_a_port_that_raises_in_the_scaler_s_first_step_has_not_switched_it_off(tmp_path):
    step = {"kind": "scaler", "step": 0, "scale": 65536.0, "skipped": False}
    raised = {
        "kind": "error",
        "error": "TypeError: step() got an unexpected keyword argument",
        "path": "a.py",
        "line": 3,
    }
    for name in ("reference", "crashed", "whole"):
        (tmp_path / name).mkdir()
    reference = write(tmp_path / "reference", run(step))
    for name, more, status in (("crashed", [raised], 1), ("whole", [], 0)):
        port = write(tmp_path / name, run(*more, device="npu"), status=status)
        found = [finding.message for finding in scales_equal(reference, port, None)]
        assert bool(found) == (name == "whole"), found


def test_ranks_that_ended_before_their_first_step_are_told_by_their_order(tmp_path):
    cards = [{"kind": "cards", "cards": [{"device": f"npu:{rank}", "number": str(rank), "held": 1}]} for rank in (0, 1)]
    recorded = write(tmp_path, *(list(run(one, device="npu")) for one in cards))
    unnamed = [
        dataclasses.replace(one, events=tuple(event for event in one.events if event["kind"] != "process"))
        for one in recorded.processes
    ]
    found = _list_cards(dataclasses.replace(recorded, processes=tuple(unnamed)))
    assert [one.rank for one in found] == [0, 1]
