"""What rounding does to the original is allowed to the port, and no more; what was put in on purpose is noticed."""

import math
from pathlib import Path

import pytest
from recordings import SITE, write

from torchport.compare import compare_recordings, reach, tolerance, yardstick
from torchport.port import controls, left
from torchport.record import states
from torchport.results.codec import to_json

STEPS = 20
LOSSES = [2.3 * 0.97**step for step in range(STEPS)]
NAMES = ["fc1.weight", "fc1.bias", "fc2.weight"]
GRADIENTS = [1.0, 0.1, 0.5]
CHANGES = [1e-2, 1e-3, 5e-3]
FAULTS = (("update", 6, "change", None), ("gradient", 12, "gradient", 2), ("sample", 19, "input", None))
MADE = [
    {"kind": "fault", "name": name, "step": step, "what": what, "optimizer": 0, "parameter": parameter}
    for name, step, what, parameter in FAULTS
]


def run(*events, device="cpu", loss=None, gradient=None, change=None, skip=(), steps=STEPS):
    """The events of a run; `loss(step)`, `gradient(step, parameter)` and `change(step, parameter)` are factors."""
    loss, gradient = loss or (lambda step: 1.0), gradient or (lambda step, parameter: 1.0)
    change = change or (lambda step, parameter: 1.0)
    launches = (lambda step: None) if device == "cpu" else (lambda step: 10 * (step + 1))
    yield {"kind": "parameters", "optimizer": 0, "step": 0, "names": NAMES, "sizes": [100, 10, 50]}
    for step in range(steps):
        yield {
            "kind": "loss",
            "site": SITE,
            "by": "backward",
            "value": LOSSES[step % STEPS] * loss(step),
            "device": device,
            "launches": launches(step),
            "elapsed": 0.1 * step,
        }
        yield {
            "kind": "step",
            "step": step,
            "device": device,
            "gradient": device,
            "launches": launches(step),
            "seconds": 0.1,
            "elapsed": 0.1 * step + 0.05,
        }
        yield {
            "kind": "norms",
            "optimizer": 0,
            "step": step,
            "norm": [1.0, 1.0, 1.0],
            "gradient": [
                None if number in skip else value * gradient(step, number) for number, value in enumerate(GRADIENTS)
            ],
            "change": [value * change(step, number) for number, value in enumerate(CHANGES)],
        }
    yield from events


def noise(size, growth=1.0):
    """Rounding of about `size`, with either sign."""
    return lambda step, *parameter: 1.0 + min(size * growth**step, 0.03) * (-1) ** (step + sum(parameter))


def faulty(size=1e-7, growth=1.0, update=0.05, gradient=0.01, sample=0.02):
    """The control run: noise, and the faults so large."""
    rounding = noise(size, growth)
    return run(
        *MADE,
        loss=lambda step: rounding(step) * (1 + sample * (step == 19)),
        gradient=lambda step, number: (
            rounding(step, number) * (1 + gradient * (step == 12 and number == 2) + sample * (step == 19))
        ),
        change=lambda step, number: rounding(step, number) * (1 + update * (step == 6) + sample * (step == 19)),
    )


@pytest.fixture
def judge(tmp_path):
    def make(port, control=None, reference=None, **more):
        runs = {"reference": reference or run(), "npu": port, "control": control if control is not None else faulty()}
        recordings = {}
        for name, events in runs.items():
            (tmp_path / name).mkdir()
            recordings[name] = write(tmp_path / name, events)
        result = compare_recordings(
            recordings["reference"], recordings["npu"], on_npu=True, control=recordings["control"], **more
        )
        return to_json(result.data) | {"codes": [finding.code for finding in result.findings]}

    return make


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


def test_a_fault_is_not_taken_for_rounding(judge):
    """Else the faults themselves would widen the bounds of the steps after them."""
    data = judge(run(device="npu", gradient=lambda step, number: 1.005 if step == 15 and number == 2 else 1.0))
    assert data["verdict"] == "does not hold"


def test_chance_notices_no_small_fault(judge):
    chance = {"kind": "random", "detail": "dropout at train.py:7 draws numbers that the other run cannot repeat"}
    data = judge(run(chance, device="npu"), reference=run(chance))
    assert data["verdict"] == "undecided"
    assert data["codes"].count("TP356") == 3


# --- what may pass


def test_equal_runs_and_what_they_would_have_noticed(judge):
    data = judge(run(device="npu"))
    assert (data["verdict"], data["codes"]) == ("holds", [])
    assert data["reason"] == (
        "20 optimizer steps compared one by one, float32; would have noticed 5 % of one update, 1 % of one layer's "
        "gradient (fc2.weight) and one sample of the batch replaced"
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
    assert reach.LEAST_SHARE == 0.8 and "If fewer than four fifths of the steps were compared" in page
    assert reach.LAST == 10 and "or none of the last tenth" in page
    assert f"means that would not notice {reach.STRONGEST * 100:.0f} % of the loss do not count" in page


def text_of(power: float) -> str:
    return f"1e{math.log10(power):.0f}"


# --- windows that begin from the original's states


RESTARTS = [{"kind": "restored", "step": step} for step in (20, 40)]


def windows(size, growth=1.2, **wrong):
    """Rounding that begins anew every twenty steps; `wrong` has functions by kind, as `run` takes them."""

    def rounding(step, *parameter):
        made = wrong.get("gradient" if parameter else "loss", lambda *_: 1.0)
        return noise(size, growth)(step % STEPS, *parameter) * made(step, *parameter)

    return run(*RESTARTS, device="npu", steps=60, loss=rounding, gradient=rounding, change=noise(size))


def test_late_faults_are_noticed_in_a_run_that_went_on_from_the_originals_states(judge):
    late = lambda step, number: 1.01 if (step, number) == (47, 2) else 1.0  # noqa: E731
    data = judge(windows(1e-7, gradient=late), faulty(1e-7, 1.2), reference=run(steps=60))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP354"])
    assert "the gradient of fc2.weight differs from step 47 on" in data["reason"]


def test_without_the_originals_states_late_faults_are_not_noticed_and_no_word_is_given_on_the_steps(judge):
    """Rounding that doubles in each step says nothing after the control run; with the states it begins anew."""
    late = lambda step, number: 1.01 if (step, number) == (47, 2) else 1.0  # noqa: E731
    grown = faulty(3e-8, 1.6)
    alone = judge(run(device="npu", steps=60, gradient=late), grown, reference=run(steps=60))
    assert (alone["verdict"], alone["codes"]) == ("undecided", ["TP364"])
    assert any("steps" in row and "one by one" in row for row in alone["unchecked"])


def test_healthy_windows_hold_and_every_step_counts(judge):
    data = judge(windows(1e-7), faulty(1e-7, 1.2), reference=run(steps=60))
    assert data["verdict"] == "holds", data["reason"]
    assert "60 optimizer steps compared one by one" in data["reason"]
    assert (data["covered"], data["unchecked"]) == ({"single": 60, "means": 0}, [])
    (late,) = select_rows(data, "late")
    assert (late["name"], late["words"], late["step"]) == ("late", "5 % of one update in step 46", 46)
    assert late["noticed"]
    allowed = data["curves"][0]["allowed"]
    assert allowed[:20] == allowed[20:40] == allowed[40:]


def select_rows(data, name):
    return [row for row in data["controls"]["rows"] if row["name"] == name]


@pytest.mark.parametrize(("size", "noticed"), [(0.0, True), (1e-3, True), (1.5e-2, False)])
def test_a_port_that_is_near_in_all_steps_rules_a_late_fault_out_where_noise_hides_it(judge, size, noticed):
    """Half precision allows an update more than the fault is large: what counts is how near the port is."""
    port = run(*RESTARTS, device="npu", steps=60, change=noise(size))
    data = judge(port, faulty(3e-3, sample=0.5), reference=run(steps=60))
    assert data["verdict"] == ("holds" if noticed else "undecided"), data["reason"]
    (late,) = select_rows(data, "late")
    if noticed:
        assert late["noticed"][0]["allowed"] == pytest.approx(max(4 * size, 1e-4), rel=1e-2)


def data_of(half, **wrong):
    """The data of each step; in step 47 they are another by one part in a thousand."""
    return [
        {"kind": "inputs", "site": SITE, "step": step, "half": half, "norms": [2.0 + wrong.get("noise", 0.0)]}
        if step != 47
        else {"kind": "inputs", "site": SITE, "step": step, "half": half, "norms": [wrong.get("late", 2.0)]}
        for step in range(60)
    ]


@pytest.mark.parametrize(("half", "noise_of_data", "refused"), [([], 0.0, True), ([0], 0.0, False), ([], 1e-4, False)])
def test_data_that_no_rounding_reaches_are_compared_as_in_float32(judge, half, noise_of_data, refused):
    """The model computes in bfloat16, whose rounding may move what is in half precision, or what noise moves."""
    used = {"kind": "precision", "dtype": "bfloat16"}
    control = [*faulty(3e-4), *data_of(half, noise=noise_of_data)]
    port = [*run(used, *RESTARTS, device="npu", steps=60), *data_of(half, late=2.002)]
    data = judge(port, control, reference=[*run(used, steps=60), *data_of(half)])
    assert data["verdict"] == ("does not hold" if refused else "holds"), data["reason"]
    assert ("data that a model is given" in data["reason"]) is refused


def test_another_control_run_from_the_same_states_measures_rounding_that_is_larger_later(judge, tmp_path):
    """The port rounds as the original does there: no fault. Ten times as far is one."""
    larger = lambda step, *_: 1 + (3e-3 if step >= 40 else 0.0)  # noqa: E731
    early = judge(windows(1e-7, loss=larger), faulty(1e-7, 1.2), reference=run(steps=60))
    assert (early["verdict"], early["codes"]) == ("does not hold", ["TP301"])
    for name in ("reference", "npu", "control"):
        (tmp_path / name).rename(tmp_path / f"early-{name}")
    noisy = lambda size: (  # noqa: E731
        run(*RESTARTS, steps=60, loss=lambda step: 1 + (size if step >= 40 else 1e-7) * (-1) ** step)
    )
    longer = write(_folder(tmp_path, "longer"), noisy(3e-3))
    data = judge(windows(1e-7, loss=larger), faulty(1e-7, 1.2), reference=run(steps=60), longer=longer)
    assert data["verdict"] == "holds", data["reason"]


def test_a_difference_in_a_later_stage_has_the_number_of_its_step(judge):
    """It decides whether the control run came that far: the second loss of a second stage is not step 1."""

    def in_stages(events):
        return [
            event | {"site": "train.py:90"} if event["kind"] == "loss" and event["elapsed"] > 2.95 else event
            for event in events
        ]

    wrong = lambda step: 1.01 if step >= 31 else 1.0  # noqa: E731
    port = in_stages(run(*RESTARTS, device="npu", steps=60, loss=wrong))
    data = judge(port, faulty(), reference=in_stages(run(steps=60)))
    assert data["verdict"] == "does not hold"
    assert data["reason"].startswith("the loss at train.py:90 differs from step 31 on: ")
    assert data["first"][0]["step"] == 31


def test_an_optimizer_that_the_control_run_never_had(judge):
    """A second stage's: measured by the other quantities of the same kind, from where its window begins."""

    def stages(events, wrong=1.0):
        for event in events:
            if event["kind"] in ("parameters", "norms") and event["step"] >= 40:
                continue
            yield event
        yield {"kind": "parameters", "optimizer": 1, "step": 40, "names": ["head"], "sizes": [5]}
        for step in range(40, 60):
            yield {
                "kind": "norms",
                "optimizer": 1,
                "step": step,
                "norm": [1.0],
                "gradient": [1.0 + 1e-7 + (wrong - 1.0) * (step == 50)],
                "change": [1e-3],
            }

    data = judge(stages(windows(1e-7), 1.005), faulty(1e-7, 1.2), reference=stages(run(steps=60)))
    assert (data["verdict"], data["codes"]) == ("does not hold", ["TP354"])
    assert "the gradient of head differs from step 50 on" in data["reason"]


def test_gradients_that_are_rounding_alone_are_named(judge):
    control = faulty()
    moved = (
        event | {"gradient": [one * (1.8 if place == 1 else 1) for place, one in enumerate(event["gradient"])]}
        if event["kind"] == "norms"
        else event
        for event in control
    )
    data = judge(run(device="npu"), moved)
    assert "the gradients of fc1.bias (they are rounding alone)" in data["unchecked"]
