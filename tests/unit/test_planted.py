"""A control run records one weight and one evaluation wrongly on purpose; the comparison has to see both."""

import pytest
import recorded
from recorded import MODEL, TRAIN

from torchport.compare import controls, start
from torchport.compare.evaluations import list_other_modes

pytestmark = pytest.mark.processes

# Evaluates after each step.
EVALUATED = TRAIN.replace(
    '    keep("own weights"',
    '    net.eval()\n    with torch.no_grad():\n        net(x)\n    keep("mode", torch.tensor(net.training))\n'
    '    net.train()\n    keep("own weights"',
)
STAGES = (
    MODEL
    + """
def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        x = torch.rand(5, 6, device="cuda")
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

train(net, 3)
later = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
later[0].load_state_dict(net[0].state_dict())
train(later, 3)
keep("own weights", *later.parameters())
"""
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    weights = str(folder / "weights")
    return {
        "reference": recorded.run(folder / "reference", EVALUATED, save=weights),
        "plain": recorded.run(folder / "plain", EVALUATED, load=weights),
        "noisy": recorded.run(folder / "noisy", EVALUATED, load=weights, noise=1, faults=True),
        "faulty": recorded.run(folder / "faulty", EVALUATED, load=weights, faults=True),
    }


def test_a_run_without_faults_has_no_other_start_and_no_other_mode(runs):
    (reference, _), (plain, _) = runs["reference"], runs["plain"]
    assert plain.of_kind("planted") == plain.of_kind("start") == []
    assert list_other_modes(reference.trained[0], plain.trained[0]) == []


@pytest.mark.parametrize("name", ["faulty", "noisy"])
def test_one_weight_and_one_evaluation_are_recorded_wrongly_and_noticed(runs, name):
    (reference, _), (faulty, _) = runs["reference"], runs[name]
    told = [event for event in faulty.of_kind("start") if start.is_more_than_rounding(event)]
    assert {(event["tensor"], event["planted"]) for event in told} == {("0.weight", True)}
    assert start.list_drawn(faulty) == set()
    rows = controls.judge_exact_faults(reference.trained[0], faulty.trained[0], chance=False)
    assert [(row.name, row.possible, len(row.noticed)) for row in rows] == [("start", True, 1), ("evaluation", True, 1)]
    assert rows[0].noticed[0].name == "0.weight" and rows[1].noticed[0].name.endswith(" Sequential")
    assert controls.list_unnoticed_words(rows) == []
    assert controls.describe_noticed_changes(rows) == ("another initial weight and an evaluation in training mode")


def test_the_script_trains_and_evaluates_as_before(runs):
    (_, plain), (_, faulty) = runs["plain"], runs["faulty"]
    assert faulty["mode"] == plain["mode"] and {mode for ((mode,),) in plain["mode"]} == {0.0}
    for kept in ("own weights", "own buffers", "own numbers"):
        assert faulty[kept][: recorded.STEPS - 1] == plain[kept][: recorded.STEPS - 1], kept


def test_what_was_not_noticed_is_said_and_does_not_decide(runs):
    (reference, _), (faulty, _) = runs["reference"], runs["faulty"]
    for recording, chance in ((reference, True), (faulty, True)):
        rows = controls.judge_exact_faults(recording.trained[0], faulty.trained[0], chance=chance)
        assert "another initial weight" in controls.list_unnoticed_words(rows)
        assert list(controls.report_unnoticed_faults(rows)) == []
    rows = controls.judge_exact_faults(faulty.trained[0], reference.trained[0], chance=False)
    assert [row.possible for row in rows] == [False, False]


# The edits keep their lines, by which draws are told apart. Parameters are named by the variable in `train`.
@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("", "", ""),
        ("later[0].load_state_dict(net[0].state_dict())", "", "model.0.weight"),
        ("state_dict())", "state_dict()); later[2].weight.data.mul_(1.5)", "model.2.weight"),
        # Rounding has moved what a first stage has trained, and a bias by as much as its size.
        ("train(net, 3)", "train(net, 3); net[0].weight.data.mul_(1.01); net[0].bias.data.mul_(1.5)", ""),
    ],
)
def test_a_later_stage_that_starts_from_other_weights_is_named(tmp_path, before, after, named):
    weights = str(tmp_path / "weights")
    _, right = recorded.run(tmp_path / "one", STAGES, save=weights)
    port, wrong = recorded.run(tmp_path / "other", STAGES.replace(before, after), load=weights)
    told = [event["tensor"] for event in port.of_kind("start") if start.is_more_than_rounding(event)]
    assert told == ([named] if named else [])
    assert wrong == right, "it goes on from the original's"


def test_a_weight_that_each_run_draws_anew_is_told_as_such_and_another_one_is_planted(tmp_path):
    """Else a port that draws its own, too, would be accused of another start."""
    drawn = EVALUATED.replace(
        "optimizer = torch",
        "import os\nnet[0].weight.data = torch.tensor(list(os.urandom(48))).view(8, 6) / 255 - 0.5\noptimizer = torch",
        1,
    )
    weights = str(tmp_path / "weights")
    recorded.run(tmp_path / "reference", drawn, save=weights)
    control, _ = recorded.run(tmp_path / "control", drawn, load=weights, faults=True)
    assert start.list_drawn(control) == {"0.weight"}
    told = {event["tensor"] for event in control.of_kind("start") if event.get("planted")}
    assert told and "0.weight" not in told
