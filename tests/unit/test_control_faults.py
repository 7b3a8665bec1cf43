"""The faults of a control run: each changes what it should where it should, and leaves no trace."""

import pytest
import recorded
from recorded import MODEL, STEPS, TRAIN

from torchport.record.recording import BACKWARD, CALL, GRADIENT

pytestmark = pytest.mark.processes

OWN = ("own gradients", "own weights", "own buffers", "own numbers")


def made(recording):
    return [(one["name"], one["step"], one["what"], one["optimizer"]) for one in recording.of_kind("fault")]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    return recorded.run(folder / "plain", TRAIN), recorded.run(folder / "faulty", TRAIN, faults=True)


def test_three_faults_are_made(both):
    (plain, _), (faulty, _) = both
    assert made(plain) == []
    assert made(faulty) == [("update", 2, "change", 0), ("gradient", 4, "gradient", 0), ("sample", 7, "input", None)]
    assert faulty.of_kind("fault")[2]["site"].endswith(" Sequential")
    assert faulty.of_kind("note") == []


def test_what_the_script_goes_on_with_is_untouched(both):
    (_, plain), (_, faulty) = both
    for name in OWN:
        assert len(plain[name]) >= STEPS - 1
        assert faulty[name][: STEPS - 1] == plain[name][: STEPS - 1], name


def test_the_update_is_larger_where_it_is_measured(both):
    (_, plain), (_, faulty) = both
    for step in range(STEPS - 1):
        right, wrong = (seen["after"][step] for seen in (plain, faulty))
        if step != 2:
            assert right == wrong
            continue
        for old, new, measured in zip(plain["before"][step], right, wrong, strict=True):
            for a, b, c in zip(old, new, measured, strict=True):
                assert c - a == pytest.approx(1.05 * (b - a), abs=3e-7)
                assert c != b


def test_one_gradient_is_larger_where_it_is_measured(both):
    (_, plain), (recording, faulty) = both[0], both[1]
    (chosen,) = [one["parameter"] for one in recording.of_kind("fault") if one["name"] == "gradient"]
    assert 0 <= chosen < 6
    for step in range(STEPS - 1):
        for place, (right, wrong) in enumerate(zip(plain["gradients"][step], faulty["gradients"][step], strict=True)):
            if (step, place) == (4, chosen):
                assert wrong == pytest.approx([1.01 * one for one in right], rel=1e-6)
            else:
                assert wrong == right
        assert faulty["gradients at the end"][step] == plain["gradients at the end"][step]


def test_one_sample_is_another_in_the_last_step(both):
    (plain, right), (faulty, wrong) = both
    assert wrong["inputs"][: STEPS - 1] == right["inputs"][: STEPS - 1]
    (old,), (new,) = right["inputs"][STEPS - 1], wrong["inputs"][STEPS - 1]
    assert new[6:] == old[6:]
    assert new[:6] == old[-6:] != old[:6]
    losses = [[event["value"] for event in one.of_kind("loss")] for one in (plain, faulty)]
    assert losses[0][:-1] == losses[1][:-1]
    assert losses[0][-1] != losses[1][-1]


def norms(recording, name):
    return [event[name] for event in recording.of_kind("norms")]


def test_each_fault_is_in_one_event_of_the_recording(both):
    (plain, _), (faulty, _) = both
    (chosen,) = [one["parameter"] for one in faulty.of_kind("fault") if one["name"] == "gradient"]
    for name, step, share in (("change", 2, 1.05), ("gradient", 4, 1.01)):
        right, wrong = norms(plain, name), norms(faulty, name)
        assert len(right) == STEPS
        assert [row for row, (a, b) in enumerate(zip(right[:-1], wrong[:-1], strict=True)) if a != b] == [step]
        for place, (a, b) in enumerate(zip(right[step], wrong[step], strict=True)):
            expected = a * share if name == "change" or place == chosen else a
            assert b == pytest.approx(expected, rel=1e-4)
    inputs = [[event["norms"] for event in one.of_kind("inputs")] for one in (plain, faulty)]
    assert inputs[0][: STEPS - 1] == inputs[1][: STEPS - 1]
    assert inputs[0][STEPS - 1] != inputs[1][STEPS - 1]


def test_an_update_of_nothing_is_left_to_the_next_step(tmp_path):
    text = TRAIN.replace(
        "    optimizer.step()", "    optimizer.param_groups[0]['lr'] = 0.01 * (step > 3)\n    optimizer.step()"
    )
    recording, _ = recorded.run(tmp_path / "one", text, faults=True)
    assert made(recording)[:2] == [("gradient", 4, "gradient", 0), ("update", 5, "change", 0)]


def test_a_closure_makes_its_gradients_itself(tmp_path):
    text = (
        MODEL
        + """
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)
for step in range(8):
    x = torch.rand(5, 6, device="cuda")
    def closure():
        optimizer.zero_grad()
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss
    optimizer.step(closure)
    keep("own weights", *net.parameters())
    keep("own gradients", *[one.grad for one in net.parameters()])
"""
    )
    _, right = recorded.run(tmp_path / "plain", text)
    faulty, wrong = recorded.run(tmp_path / "faulty", text, faults=True)
    assert [row[:2] for row in made(faulty)] == [("update", 2), ("gradient", 4), ("sample", 7)]
    for name in ("own weights", "own gradients"):
        assert wrong[name] == right[name]
    differing = [
        step for step in range(STEPS - 1) if wrong["gradients at the end"][step] != right["gradients at the end"][step]
    ]
    assert differing == [4]


def test_optimizers_that_share_a_forward(tmp_path):
    text = (
        MODEL
        + """
optimizers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in (net[0], net[3])]
for step in range(4):
    x = torch.rand(5, 6, device="cuda")
    net.zero_grad()
    (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
"""
    )
    recording, _ = recorded.run(tmp_path / "one", text, faults=True)
    assert made(recording) == [("update", 2, "change", 0), ("gradient", 4, "gradient", 0), ("sample", 6, "input", None)]


@pytest.mark.parametrize(
    ("given", "call"),
    [
        ("torch.rand(1, 6, device='cuda')", "net(x)"),
        ("torch.rand(5, 6, device='cuda')", "net(input=x)"),
        ("torch.randint(0, 9, (5, 6), device='cuda')", "wrap({'mask': torch.ones(5, dtype=torch.bool), 'ids': x})"),
    ],
)
def test_other_inputs_have_samples_too(tmp_path, given, call):
    text = f"""
net = torch.nn.Linear(6, 1).cuda()
class Wrap(torch.nn.Module):
    def forward(self, batch):
        return net(batch["ids"].float())
wrap = Wrap()
net.register_forward_pre_hook(lambda module, args, kwargs: keep("inputs", *args, *kwargs.values()), with_kwargs=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(8):
    x = {given}
    keep("own inputs", x)
    optimizer.zero_grad()
    {call}.sum().backward()
    optimizer.step()
"""
    recording, seen = recorded.run(tmp_path / "one", text, faults=True)
    assert made(recording)[2][:2] == ("sample", 7)
    assert seen["inputs"][:7] == seen["own inputs"][:7]
    assert seen["inputs"][7] != seen["own inputs"][7]


def test_backward_without_an_optimizer(tmp_path):
    text = """
w = torch.ones(4, device="cuda", requires_grad=True)
b = torch.zeros(1, device="cuda", requires_grad=True)
leaves = [w, b]
for step in range(8):
    w.grad = b.grad = None
    (w.square().sum() + (b - 1).square().sum()).backward()
    keep("own gradients", w.grad, b.grad)
    with torch.no_grad():
        w -= 0.1 * w.grad
        b -= 0.1 * b.grad
"""
    _, right = recorded.run(tmp_path / "plain", text, kind=BACKWARD)
    faulty, wrong = recorded.run(tmp_path / "faulty", text, kind=BACKWARD, faults=True)
    assert [row[:2] for row in made(faulty)] == [("gradient", 4)]
    assert wrong["own gradients"] == right["own gradients"]
    for step in range(7):
        changed = pytest.approx([1.01 * one for one in right["results"][step][0]], rel=1e-6)
        assert wrong["results"][step][0] == (changed if step == 4 else right["results"][step][0])
        assert wrong["results"][step][1] == right["results"][step][1]
    assert [note["text"] for note in faulty.of_kind("note")] == [
        "the control run could not make its fault 'sample': no module was called with tensors"
    ]


def test_gradients_of_autograd_grad(tmp_path):
    text = """
w = torch.ones(4, device="cuda", requires_grad=True)
for step in range(8):
    (gradient,) = torch.autograd.grad(w.square().sum(), [w])
    keep("own gradients", gradient)
    w = (w - 0.1 * gradient).detach().requires_grad_()
"""
    _, right = recorded.run(tmp_path / "plain", text, kind=GRADIENT)
    faulty, wrong = recorded.run(tmp_path / "faulty", text, kind=GRADIENT, faults=True)
    assert [row[:2] for row in made(faulty)] == [("gradient", 4)]
    assert wrong["own gradients"] == right["own gradients"]
    assert [step for step in range(7) if wrong["results"][step] != right["results"][step]] == [4]


def test_an_evaluation_has_samples_only(tmp_path):
    text = (
        MODEL
        + """
net.eval()
with torch.no_grad():
    for step in range(8):
        keep("outputs", net(torch.rand(5, 6, device="cuda")))
"""
    )
    _, right = recorded.run(tmp_path / "plain", text, kind=CALL)
    faulty, wrong = recorded.run(tmp_path / "faulty", text, kind=CALL, faults=True)
    assert made(faulty) == [("sample", 7, "input", None)]
    assert wrong["outputs"] == right["outputs"]
    values = [event["value"] for event in faulty.of_kind("call")]
    assert len(values) == 8


def test_a_run_of_two_steps_has_no_room(tmp_path):
    recording, _ = recorded.run(tmp_path / "one", TRAIN, faults=True, steps=2)
    assert made(recording) == []
    assert "no faults are made" in recording.of_kind("note")[0]["text"]


def test_a_training_by_gradients_of_single_samples(tmp_path):
    """Within a transform of torch.func a module has wrappers for parameters, which no state can be read from."""
    text = (
        MODEL.replace("torch.nn.BatchNorm1d(8), ", "")
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def loss_of(weights, x):
    return torch.func.functional_call(net, weights, (x[None],)).square().mean()
for step in range(9):
    x = torch.rand(5, 6, device="cuda")
    weights = {name: one.detach() for name, one in net.named_parameters()}
    each = torch.func.vmap(torch.func.grad(loss_of), (None, 0))(weights, x)
    for name, one in net.named_parameters():
        one.grad = each[name].mean(0)
    optimizer.step()
    keep("own weights", *net.parameters())
"""
    )
    weights = str(tmp_path / "weights")
    reference, right = recorded.run(tmp_path / "reference", text, save=weights)
    control, wrong = recorded.run(tmp_path / "control", text, load=weights, faults=True)
    assert len(reference.of_kind("loss")) == len(reference.of_kind("step")) == STEPS
    assert [name for name, *_ in made(control)] == ["update", "gradient"]
    assert [event["where"] for event in control.of_kind("planted")] == ["net.0.weight"]
    assert wrong["own weights"][: STEPS - 1] == right["own weights"][: STEPS - 1]


def test_a_fault_of_a_transform_is_where_its_event_says(tmp_path):
    """torch.autograd.grad, which a transform calls, is no step of its own."""
    text = """
weights = torch.rand(4, 6, device="cuda")
def loss_of(weights, x):
    return (weights @ x).square().mean()
for step in range(9):
    each = torch.func.vmap(torch.func.grad(loss_of), (None, 0))(weights, torch.rand(5, 6, device="cuda"))
    weights = weights - 0.1 * each.mean(0)
"""
    (reference, _), (control, _) = (
        recorded.run(tmp_path / name, text, kind=GRADIENT, faults=faults)
        for name, faults in (("reference", False), ("control", True))
    )
    sides = [{row["step"]: row["gradient"] for row in side.of_kind("norms")} for side in (reference, control)]
    apart = [step for step in sides[1] if sides[0][step] != sides[1][step]]
    assert apart == [step for name, step, *_ in made(control) if name == "gradient"]
    assert len(apart) == 1
