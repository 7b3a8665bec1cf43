"""States of a training: saved by one run, and another goes on from the same numbers in each step."""

import itertools

import pytest
import recorded
from recorded import MODEL, STEPS, TRAIN

from torchport.record import states

pytestmark = pytest.mark.processes

# `astray` is called by some: it changes everything that a state has, and with a state loaded nothing of that is left.
LOOP = (
    """
import random, numpy
def astray():
    with torch.no_grad():
        for one in (*net.parameters(), *net.buffers()):
            if one.is_floating_point():
                one += 0.5
        for values in optimizer.state.values():
            for value in values.values():
                value += 1
    random.random(), numpy.random.rand()
"""
    + TRAIN
    + """
    keep("other numbers", torch.tensor([random.random(), numpy.random.rand(), float(torch.rand(()))]))
"""
)
# On the line of another call, as the place of a draw is part of what it draws.
ASTRAY = LOOP.replace("    optimizer.step()", "    astray(); optimizer.step()")
OTHER_NUMBER = "random numbers were drawn in another number than in the run that saved its states"
OWN = ("own weights", "own buffers", "own numbers", "other numbers")


def saved(folder, text=LOOP, **options):
    return recorded.run(folder / "saving", text, states_out=str(folder / "states"), **options)


def test_a_run_that_loads_is_put_right_after_each_step(tmp_path):
    recording, right = saved(tmp_path)
    assert recording.of_kind("note") == []
    assert states.measure_saved_states(tmp_path / "states")[0] == STEPS
    _, astray = recorded.run(tmp_path / "astray", ASTRAY)
    loading, wrong = recorded.run(tmp_path / "loading", ASTRAY, states_in=str(tmp_path / "states"))
    for name in OWN:
        assert (astray[name] != right[name]) == (name != "own numbers"), name
        assert wrong[name] == right[name], name
    assert [event["text"] for event in loading.of_kind("note")] == [f"{OTHER_NUMBER} (python, numpy)"]
    losses = [[event["value"] for event in one.of_kind("loss")] for one in (recording, loading)]
    assert losses[0] == losses[1]


def test_saving_changes_nothing(tmp_path):
    _, plain = recorded.run(tmp_path / "plain", LOOP)
    _, seen = saved(tmp_path)
    for name in (*OWN, "gradients", "before", "after"):
        assert seen[name] == plain[name], name


def test_hyper_parameters_belong_to_the_run_and_changes_count_from_the_state(tmp_path):
    recording, _ = saved(tmp_path)
    faster, _ = recorded.run(
        tmp_path / "loading", LOOP.replace("lr=0.01", "lr=0.02"), states_in=str(tmp_path / "states")
    )
    for right, twice in zip(recording.of_kind("norms"), faster.of_kind("norms"), strict=True):
        assert twice["gradient"] == pytest.approx(right["gradient"], rel=1e-6)
        assert twice["change"] == pytest.approx([2 * one for one in right["change"]], rel=1e-3)


def test_a_scaler_has_its_scale_again(tmp_path):
    text = LOOP.replace(
        "for step in range(9):", "scaler = torch.amp.GradScaler('cuda', init_scale=64.0)\nfor step in range(9):"
    )
    text = text.replace("loss.backward()", "scaler.scale(loss).backward()").replace(
        "    optimizer.step()\n",
        "    keep('scale', torch.tensor(scaler.get_scale()))\n    scaler.step(optimizer)\n    scaler.update(CHOSEN)\n",
    )
    _, right = saved(tmp_path, text.replace("CHOSEN", "None"))
    _, seen = recorded.run(tmp_path / "loading", text.replace("CHOSEN", "32.0"), states_in=str(tmp_path / "states"))
    assert {one[0][0] for one in right["scale"]} == {64.0}
    assert {one[0][0] for one in seen["scale"]} == {64.0, 32.0}  # its own update comes after the step
    assert seen["scale"][0][0] == [64.0]


def test_optimizers_that_take_turns_get_their_own(tmp_path):
    text = """
nets = [torch.nn.Linear(3, 1).cuda() for _ in range(2)]
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1 + number, momentum=0.9) for number, net in enumerate(nets)]
for step in range(4):
    for net, optimizer in zip(nets, optimizers):
        optimizer.zero_grad()
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        keep("own weights", *nets[0].parameters(), *nets[1].parameters())
"""
    _, right = saved(tmp_path, text)
    names = sorted(path.name for path in (tmp_path / "states").glob("*/*"))
    assert names == [f"optimizer-{number}-{count}.pt" for number in range(2) for count in range(1, 5)]
    astray = text.replace("        optimizer.step()", "        net.weight.grad *= 2; optimizer.step()")
    loading, seen = recorded.run(tmp_path / "loading", astray, states_in=str(tmp_path / "states"))
    assert seen["own weights"] == right["own weights"]
    assert loading.of_kind("note") == []


def test_one_in_so_many_steps_and_fewer_where_the_bytes_are_used_up(tmp_path):
    text = LOOP.replace("range(9)", "range(23)")
    recording, right = saved(tmp_path / "some", text, steps=None, states_every=5)
    assert sorted(kept(tmp_path / "some")) == [5, 10, 15, 20]
    loading, seen = recorded.run(
        tmp_path / "loading",
        ASTRAY.replace("range(9)", "range(23)"),
        states_in=str(tmp_path / "some" / "states"),
        steps=None,
    )
    assert [event["step"] for event in loading.of_kind("restored")] == [5, 10, 15, 20]
    same = [step for step in range(1, 24) if seen["own weights"][step - 1] == right["own weights"][step - 1]]
    assert same == [5, 10, 15, 20]
    few = "next(one for one in parts if type(one).__name__ == 'States')._left = 3 * 9000\n" + text
    recording, _ = saved(tmp_path / "few", few, steps=None, states_every=2)
    places = sorted(kept(tmp_path / "few"))
    assert places and places[-1] >= 16, places
    assert len({after - before for before, after in itertools.pairwise([0, *places])}) == 1, places
    assert states.measure_saved_states(tmp_path / "few" / "states")[1] <= 27000
    assert recording.of_kind("note") == []
    none = "next(one for one in parts if type(one).__name__ == 'States')._left = 90\n" + text
    recording, _ = saved(tmp_path / "none", none, steps=None, states_every=5)
    assert kept(tmp_path / "none") == []
    (note,) = recording.of_kind("note")
    assert "no state was kept: one needs" in note["text"]


def kept(folder):
    return [int(path.stem.rpartition("-")[2]) for path in (folder / "states").glob("*/*.pt")]


def test_no_more_than_the_bytes(tmp_path):
    text = LOOP.replace("range(9)", "range(23)")
    saved(tmp_path / "many", text, steps=None)
    assert states.measure_saved_states(tmp_path / "many" / "states")[0] == 23 < states.MOST_STEPS
    assert states.MOST_BYTES == 4 << 30

    few = "next(one for one in parts if type(one).__name__ == 'States')._left = 3 * 9000\n" + text
    recording, seen = saved(tmp_path / "few", few, steps=None)
    count, size = states.measure_saved_states(tmp_path / "few" / "states")
    assert 1 <= count < 9
    assert size <= 27000
    assert len(seen["own weights"]) == 23
    (note,) = recording.of_kind("note")
    assert f"only the states of {count} steps were saved" in note["text"]
    assert not list((tmp_path / "few").rglob("*.unfinished"))
    # A run that loads goes on by itself from there.
    loading, own = recorded.run(
        tmp_path / "loading",
        ASTRAY.replace("range(9)", "range(23)"),
        states_in=str(tmp_path / "few" / "states"),
        steps=None,
    )
    assert own["own weights"][:count] == seen["own weights"][:count]
    assert own["own weights"][count] != seen["own weights"][count]
    assert [event["text"] for event in loading.of_kind("note")] == [f"{OTHER_NUMBER} (python, numpy)"]


def test_what_does_not_fit_is_left_and_said(tmp_path):
    saved(tmp_path)
    other = LOOP.replace("torch.nn.BatchNorm1d(8)", "torch.nn.BatchNorm1d(8, track_running_stats=False)")
    loading, _ = recorded.run(tmp_path / "other", other, states_in=str(tmp_path / "states"))
    assert "tensors that the saved state does not fit" in loading.of_kind("note")[0]["text"]

    for path in (tmp_path / "states").glob("*/*.pt"):
        path.write_bytes(path.read_bytes()[:500])
    damaged, _ = recorded.run(tmp_path / "damaged", LOOP, states_in=str(tmp_path / "states"))
    assert "is damaged" in damaged.of_kind("note")[0]["text"]


def test_random_numbers_that_are_drawn_in_another_number_are_said(tmp_path):
    saved(tmp_path)
    text = LOOP.replace("    optimizer.step()", "    torch.rand(step); optimizer.step()")
    loading, _ = recorded.run(tmp_path / "other", text, states_in=str(tmp_path / "states"))
    assert [event["text"] for event in loading.of_kind("note")] == [f"{OTHER_NUMBER} (torch)"]


def test_nothing_was_saved(tmp_path):
    assert states.measure_saved_states(tmp_path / "absent") == (0, 0)


@pytest.mark.parametrize(
    ("old", "new"), [("history_size=5", "history_size=3"), ("net.parameters(),", "[*net.parameters()][:2],")]
)
def test_the_state_of_another_optimizer_is_not_loaded(tmp_path, old, new):
    """A history of another length, or other parameters: the next step would fail in the user's program."""
    text = (
        MODEL
        + """
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3, history_size=5)
x = torch.rand(20, 6, device="cuda")
def closure():
    optimizer.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    return loss
for step in range(9):
    optimizer.step(closure)
"""
    )
    saved(tmp_path, text)
    assert old in text
    loading, _ = recorded.run(tmp_path / "other", text.replace(old, new), states_in=str(tmp_path / "states"))
    assert len(loading.of_kind("step")) == recorded.STEPS
    assert any("does not fit optimizer 0" in event["text"] for event in loading.of_kind("note"))
