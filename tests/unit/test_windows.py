"""A port that goes on from the original's states every twenty steps: late faults, later stages, data in half precision."""

import functools

import pytest
from recordings import SITE, write
from training_events import RESTARTS, faulty, judge_in, noise, run, windows


@pytest.fixture
def judge(tmp_path):
    return functools.partial(judge_in, tmp_path)


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
    (tmp_path / "longer").mkdir()
    longer = write(tmp_path / "longer", noisy(3e-3))
    data = judge(windows(1e-7, loss=larger), faulty(1e-7, 1.2), reference=run(steps=60), longer=[longer])
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


@pytest.mark.parametrize(("dtype", "size", "word"), [("float16", 0.2, "holds"), ("float16", 0.6, "does not hold")])
def test_a_small_gradient_of_one_batch_has_the_rounding_of_its_neighbours(judge, dtype, size, word):
    """In half precision: a quarter of the usual gradient in step 34, of which rounding leaves four times the share."""
    used = {"kind": "precision", "dtype": dtype}
    dip = lambda step, number: 0.25 if (step, number) == (34, 1) else 1.0  # noqa: E731
    port = lambda step, number: dip(step, number) * (1 + size * ((step, number) == (34, 1)))  # noqa: E731
    control = [used, *faulty()]
    for event in control:
        if event["kind"] == "norms":
            event["gradient"][1] *= 1 + 3e-2 * (-1) ** event["step"]
    data = judge(
        run(used, *RESTARTS, device="npu", steps=60, gradient=port),
        control,
        reference=run(used, steps=60, gradient=dip),
    )
    assert data["verdict"] == word, data["reason"]


def in_two_stages(events):
    """From step 30 on another optimizer steps, with a parameter of its own."""
    yield {"kind": "parameters", "optimizer": 1, "step": 30, "names": ["head.weight"], "sizes": [100]}
    for event in events:
        later = event["kind"] == "norms" and event["step"] >= 30
        yield (
            event | {name: event[name][:1] for name in ("norm", "gradient", "change")} | {"optimizer": 1}
            if later
            else event
        )


def test_the_late_fault_is_one_of_the_stage_that_trains_last(judge):
    runs = (windows(1e-7), faulty(1e-7, 1.2), run(steps=60))
    data = judge(*map(in_two_stages, runs))
    assert data["verdict"] == "holds", data["reason"]
    assert "5 % of one update (also in step 46)" in data["reason"]
    (late,) = select_rows(data, "late")
    assert [one["name"] for one in late["noticed"]] == ["head.weight"]
