"""The device's own draws, measured beside those of a run: wrong kernels, torch_npu's on the NPU, and that neither is
felt."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchport import vnpu
from torchport.compare.drawn import _fault
from torchport.patches import Patches
from torchport.record.draws import Draws, own
from torchport.record.draws.trials import MOST, Trials
from torchport.record.session import PORT, REFERENCE, VARIABLE, Options

N = 100_000
TRIALS = Trials(torch)
DROP = torch.native_dropout
X = torch.zeros(N)
MASK = (torch.rand(N, generator=torch.Generator().manual_seed(3)) < 0.5).float()
WEIGHTS = torch.arange(1.0, 10)

# What a device with a fault would give: the operator, the script's arguments, the device's kernel.
WRONG = {
    "another share": ("native_dropout", (X, 0.45, True), lambda x, p, train: DROP(x, 0.5, train)),
    "an unscaled mask": ("native_dropout", (X, 0.5, True), lambda x, p, train: (x * MASK, MASK)),
    "a mask scaled by its share": ("native_dropout", (X, 0.5, True), lambda x, p, train: (x * MASK / 4, MASK)),
    "no dropout": ("native_dropout", (X, 0.1, True), lambda x, p, train: (x, x > 0)),
    "a shift": ("normal_", (X,), lambda x, *a, generator: x.normal_(0.03, 1)),
    "a variance for a deviation": ("normal_", (X, 0.0, 2.0), lambda x, m, s, generator: x.normal_(m, s * s)),
    "infinite": ("normal_", (X,), lambda x, *a, generator: x.normal_().div_(0)),
    "not a number": ("normal_", (X,), lambda x, *a, generator: x.fill_(math.nan)),
    "bounds unused": ("uniform_", (X, -1.0, 3.0), lambda x, *a, generator: x.uniform_()),
    "twice the range": ("uniform_", (X,), lambda x, *a, generator: x.uniform_(0, 2)),
    "one included": (
        "uniform_",
        (X,),
        lambda x, *a, generator: x.uniform_().clamp_(min=0.5).mul_(2).sub_(1).div_(x.max()),
    ),
    "nothing drawn": ("uniform_", (X,), lambda x, *a, generator: x.zero_()),
    "the bound included": ("random_.to", (X, 10), lambda x, to, generator: x.random_(to + 1)),
    "one too low": ("random_.from", (X, 5, 9), lambda x, low, to, generator: x.random_(low - 1, to)),
    "the other share": ("bernoulli_.float", (X, 0.3), lambda x, p, generator: x.bernoulli_(1 - p)),
    "shares ignored": ("bernoulli", (torch.linspace(0, 1, N),), lambda p, generator: p.new_empty(N).bernoulli_(0.5)),
    "shares rounded to one": ("bernoulli_.Tensor", (X, torch.linspace(0, 1, N)), lambda x, p, generator: p.round()),
    "numbers between": ("bernoulli_.float", (X, 0.5), lambda x, p, generator: x.fill_(0.5)),
    "another rate": ("exponential_", (X, 2.0), lambda x, rate, generator: x.exponential_(2.1)),
    "the inverse rate": ("exponential_", (X, 2.0), lambda x, rate, generator: x.exponential_(0.5)),
    "one number twice": ("randperm", (N,), lambda n: torch.randint(0, n, (n,))),
    "one too few": ("randperm", (N,), lambda n: torch.arange(n - 1)),
    "nothing permuted": ("randperm", (N,), torch.arange),
    "weights ignored": (
        "multinomial",
        (WEIGHTS, 5, True),
        lambda w, n, r, generator: torch.multinomial(torch.ones_like(w), n, r),
    ),
    "drawn twice": ("multinomial", (WEIGHTS, 5, False), lambda w, n, r, generator: torch.multinomial(w, n, True)),
    "the weightless": (
        "multinomial",
        (torch.tensor([0.0, 1, 1e-3]), 1, True),
        lambda w, n, r, generator: torch.multinomial(w + 1e-2, n, r),
    ),
    "means forgotten": (
        "normal.Tensor_float",
        (torch.arange(1000.0), 1.0),
        lambda mean, std, generator: mean.clone().normal_(),
    ),
    "slopes of another layer": (
        "rrelu_with_noise",
        (X, X, 0.1, 0.3, True),
        lambda x, noise, *a: x * noise.uniform_(0.1, 0.4),
    ),
    "attention without dropout": (
        "scaled_dot_product_attention",
        (torch.zeros(1, 1, 4, 8), X, X, None, 0.1),
        lambda q, k, v, *a: functional.scaled_dot_product_attention(q, k, v),
    ),
    "attention with an unscaled mask": (
        "scaled_dot_product_attention",
        (torch.zeros(1, 1, 4, 8), X, X, None, 0.1),
        lambda q, k, v, *a: functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1) * 0.9,
    ),
    "a recurrent layer without dropout": (
        "gru.input",
        (torch.zeros(4, 2, 8), X, [], True, 2, 0.2, True, False, False),
        lambda data, hidden, weights, biases, layers, p, *a: torch.gru(data, hidden, weights, biases, layers, 0.0, *a),
    ),
}


def measured(operator: str, arguments: tuple, kernel) -> dict:
    trial = TRIALS.find_trial_method(f"aten::{operator}")(*arguments)
    torch.manual_seed(17)
    return own._repeated(trial, kernel)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_refused(name):
    assert _fault(measured(*WRONG[name]))


def right(operator: str):
    """What the CPU does, for arguments as a trial gives them."""
    packet, _, overload = operator.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@pytest.mark.parametrize("name", [name for name in WRONG if WRONG[name][0] != "native_dropout"])
def test_the_right_kernel_passes(name):
    operator, arguments, _ = WRONG[name]
    assert _fault(measured(operator, arguments, right(operator))) == ""


def test_few_numbers_are_drawn_again():
    calls = []

    def kernel(x, *bounds, generator):
        calls.append(len(x))
        return x.uniform_()

    assert measured("uniform_", (torch.empty(100),), kernel)["count"] == 1000
    assert calls == [100] * 10
    assert measured("uniform_", (torch.empty(2),), kernel)["count"] == 2 * own.REPEATS
    assert measured("uniform_", (torch.empty(10 * MOST),), kernel)["count"] == MOST  # nor more than are looked at


def empty(dtype, count=N):
    return torch.empty(count, dtype=dtype, device="npu")


DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DEVICES_OWN = {
    "uniform_": lambda t: empty(t).uniform_(-2, 3),
    "uniform_ in one": lambda t: empty(t).uniform_(),
    "normal_": lambda t: empty(t).normal_(-2, 3),
    "normal.float_float": lambda t: torch.normal(2.0, 3.0, (N,), dtype=t, device="npu"),
    "normal.Tensor_float": lambda t: torch.normal(empty(t).fill_(2), 3.0),
    "normal.float_Tensor": lambda t: torch.normal(2.0, empty(t).fill_(3)),
    "normal.Tensor_Tensor": lambda t: torch.normal(empty(t).fill_(2), empty(t).fill_(3)),
    "random_": lambda t: empty(t).random_(),
    "random_.to": lambda t: empty(t).random_(100),
    "random_.from": lambda t: empty(t).random_(-20, 100),
    "bernoulli_.float": lambda t: empty(t).bernoulli_(0.3),
    "bernoulli_.Tensor": lambda t: empty(t).bernoulli_(torch.linspace(0, 1, N, device="npu")),
    "bernoulli.p": lambda t: torch.bernoulli(empty(t), 0.3),
    "bernoulli": lambda t: torch.bernoulli(torch.linspace(0, 1, N, device="npu").to(t)),
    "exponential_": lambda t: empty(t).exponential_(2),
    "multinomial": lambda t: torch.multinomial(WEIGHTS.to("npu", t), 4),
    "native_dropout": lambda t: functional.dropout(empty(t).fill_(1), 0.3),
    "rrelu_with_noise": lambda t: functional.rrelu(empty(t).fill_(-1), training=True),
    "rrelu_with_noise_": lambda t: functional.rrelu(empty(t).fill_(-1), training=True, inplace=True),
    "scaled_dot_product_attention": lambda t: functional.scaled_dot_product_attention(
        *[torch.ones(2, 2, 8, 16, dtype=t, device="npu")] * 3, dropout_p=0.2
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", DEVICES_OWN)
def test_torch_npu_draws_as_it_should(name, dtype, measuring, events, told):
    torch.manual_seed(23)
    DEVICES_OWN[name](dtype)
    assert name.split()[0] in [event["operator"] for event in events]
    for event in events:
        assert event["error"] is None
        assert _fault(event) == ""
        assert event["count"] >= 1000
        assert "test_device_statistics.py" in event["site"]
    assert told == []


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_torch_npu_draws_whole_numbers_and_permutations(dtype, measuring, events):
    empty(dtype).random_(9)
    empty(dtype).random_()
    torch.randperm(N, dtype=dtype, device="npu")
    torch.randint(-5, 2**20, (N,), dtype=dtype, device="npu")
    assert [event["operator"] for event in events] == ["random_.to", "random_", "randperm", "random_.from"]
    assert [_fault(event) for event in events] == [""] * 4


def test_other_seeds_draw_other_numbers(measuring, events):
    for seed in (1, 2):
        torch.manual_seed(seed)
        functional.dropout(empty(torch.float32), 0.3 + seed / 100)  # another p, so another kind
    assert events[0]["mean"] - 0.69 != events[1]["mean"] - 0.68


# Seen in torch_npu 2.13, which the kernels of the run, ours, would hide.
def test_torch_npu_draws_no_true(measuring, events):
    assert empty(torch.bool).random_().float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert _fault(events[0]) == "the mean of 100,000 is 0, where 0.5 is expected (chance: 0.01)"


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_torch_npu_drops_nothing_in_recurrent_layers(layer, measuring, events):
    net = layer(6, 5, 2, dropout=0.5).npu()
    before = net(torch.ones(7, 3, 6, device="npu"))[0]
    (event,) = [event for event in events if event["operator"].endswith(".input")]
    assert _fault(event) == "nothing is dropped"
    assert event["mean"] == 1
    assert not torch.equal(before, net(torch.ones(7, 3, 6, device="npu"))[0])  # ours does drop


@pytest.mark.filterwarnings("error:LSTM fallback")  # of several layers, which ours has not
def test_what_the_devices_kernels_warn_of_is_not_felt(measuring, events, request):
    torch.set_warn_always(True)  # not once
    request.addfinalizer(lambda: torch.set_warn_always(False))
    nn.LSTM(6, 5, 2, dropout=0.4).npu()(torch.ones(7, 3, 6, device="npu"))
    assert events[-1]["error"] is None


def test_a_recurrent_layer_without_dropout_is_not_tried(measuring, events):
    nn.LSTM(6, 5, 2).npu()(torch.ones(7, 3, 6, device="npu"))
    nn.LSTM(6, 5, 2, dropout=0.5).npu().eval()(torch.ones(7, 3, 6, device="npu"))
    assert events == []


def test_what_the_device_cannot_draw_is_told_and_drawn_all_the_same(measuring, events):
    x = empty(torch.float64, 1000).fill_(1)
    out = functional.dropout(x, 0.5)
    assert set(out.cpu().tolist()) == {0.0, 2.0}
    (event,) = events
    assert (event["operator"], event["dtype"], event["count"]) == ("native_dropout", "float64", 0)
    assert "aclnnDropoutDoMask" in str(event["error"])
    assert torch.equal((x + 1).cpu(), torch.full((1000,), 2.0, dtype=torch.float64))  # the device still works
    functional.dropout(empty(torch.float32), 0.5)
    assert _fault(events[1]) == ""


def test_what_the_script_may_not_ask_for_is_not_told(measuring, events):
    for wrong in (
        lambda: empty(torch.float32).normal_(0, -1),
        lambda: torch.randint(5, 5, (3,), device="npu"),
        lambda: functional.dropout(empty(torch.float32), 1.5),
        lambda: torch.randperm(9, device="npu", dtype=torch.bool),
        lambda: torch.multinomial(torch.zeros(3, device="npu"), 5),
    ):
        with pytest.raises((RuntimeError, ValueError)):
            wrong()
    assert events == []


def script(device: str) -> list[torch.Tensor]:
    """Draws of all sorts, and what a script can see of the generators in between."""
    torch.manual_seed(5)
    generator = torch.Generator(device).manual_seed(9)
    found = []
    for _ in range(2):
        found += [
            torch.rand(50, device=device),
            torch.rand(50, device=device, generator=generator),
            functional.dropout(torch.ones(50, device=device), 0.3),
            torch.randperm(50, device=device),
            torch.multinomial(WEIGHTS.to(device), 4),
            torch.rand(50),
            torch.get_rng_state(),
            torch.npu.get_rng_state(),
            generator.get_state(),
        ]
    return [one.cpu() for one in found]


def test_nothing_that_a_script_sees_changes(events, told):
    found = []
    for drawn in (None, lambda **event: events.append(event)):
        patches, state = Patches(), torch.get_rng_state()
        Draws(torch, 0, lambda: "here", lambda *what: told.append(what), drawn).install(patches)
        try:
            found.append(script("npu"))
        finally:
            patches.undo()
            torch.set_rng_state(state)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert {event["operator"] for event in events} == {"uniform_", "native_dropout", "randperm", "multinomial"}
    assert told == []


def test_generators_are_not_moved(measuring, events, told):
    torch.rand(5, device="npu")  # before: the device's generator is there
    measuring.step_done()
    states = measuring.generators.read_device_states()
    host = torch.default_generator
    before = measuring.generators._get(host)
    torch.multinomial(WEIGHTS.npu(), 4)
    functional.dropout(torch.ones(500, device="npu"), 0.3)
    assert len(events) == 3
    assert measuring.generators.read_device_states() == states
    assert torch.equal(measuring.generators._get(host), before)
    measuring.step_done()
    assert told == []


def test_the_scripts_tensors_are_not_touched(measuring, events):
    x = torch.arange(1000.0, device="npu", requires_grad=True)
    noise = torch.zeros(1000, device="npu")
    out = functional.dropout(x, 0.5)
    out.sum().backward()
    assert torch.equal(x.detach().cpu(), torch.arange(1000.0))
    assert torch.equal((x.grad != 0).cpu(), ((out != 0) | (x == 0) & (x.grad != 0)).cpu())
    assert noise.sum().item() == 0
    with torch.inference_mode():
        functional.dropout(x, 0.25)
    assert [event["operator"] for event in events] == ["native_dropout"] * 2


def test_a_kind_is_measured_once_at_each_place(measuring, events):
    for _ in range(5):
        functional.dropout(torch.ones(1000, device="npu"), 0.5)
    assert len(events) == 1
    functional.dropout(torch.ones(1000, device="npu"), 0.5)  # another line
    functional.dropout(torch.ones(1000, device="npu"), 0.4)
    functional.dropout(torch.ones(1000, device="npu", dtype=torch.float16), 0.4)
    assert len(events) == 4


def test_layers_of_many_bounds_leave_room_for_the_rest(measuring, events):
    for bound in range(1, 50):
        torch.empty(1000, device="npu").uniform_(-bound, bound)
    assert len(events) == own.MOST_EACH
    functional.dropout(torch.ones(1000, device="npu"), 0.5)
    assert events[-1]["operator"] == "native_dropout"


def test_nothing_is_measured_on_the_host_or_while_a_graph_is_captured(measuring, events):
    torch.rand(100)
    functional.dropout(torch.ones(100), 0.5)
    x = torch.ones(1000, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = functional.dropout(x, 0.5)
    graph.replay()
    assert set(out.cpu().tolist()) == {0.0, 2.0}
    assert events == []


def test_modes_of_the_script_see_none_of_it(measuring, events):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            seen.append(str(operator))
            return operator(*args, **(kwargs or {}))

    x = torch.ones(2, 2, 8, 16, device="npu")
    with Functions():
        torch.dropout(x, 0.5, True)
    assert seen == ["dropout"]
    seen.clear()
    with Operators():
        torch.dropout(x, 0.4, True)
        torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.2)
    assert "aten.eye.default" not in seen
    assert len([one for one in seen if "dropout" in one]) <= 2
    assert [event["operator"] for event in events] == ["native_dropout"] * 3  # the attention's own is not tried here


PROGRAM = """
import torch, torch_npu
x = torch.ones(1000, device="npu")
for p in (0.5, 0.5):
    torch.nn.functional.dropout(x, p)
torch.nn.functional.dropout(torch.ones(1000, dtype=torch.float64, device="npu"), 0.5)
print(torch.rand(3, device="npu").tolist())
"""


@pytest.mark.parametrize("side", [PORT, REFERENCE, ""])
def test_the_port_alone_records_it(side, tmp_path):
    program = PROGRAM if side != REFERENCE else PROGRAM.replace(", torch_npu", "").replace("npu", "cuda")
    (tmp_path / "train.py").write_text(program)
    out = tmp_path / "out"
    options = Options(str(out), side, {str(tmp_path): str(tmp_path)})
    start = os.path.dirname(vnpu.__file__) + "/../start"
    environment = {**os.environ, **vnpu.environment(), VARIABLE: options.to_variable(), "PYTHONPATH": start}
    out.mkdir()
    (out / "recording.json").write_text(json.dumps({}))
    run = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == (0 if side != "" else 1), run.stderr  # by itself it cannot draw float64
    (journal,) = (out / "processes").glob("*/steps.jsonl")
    events = [event for event in map(json.loads, journal.read_text().splitlines()) if event["kind"] == "drawn"]
    if side != PORT:
        assert events == []
        return
    assert [(event["operator"], event["dtype"], event["site"]) for event in events] == [
        ("native_dropout", "float32", "train.py:5"),
        ("native_dropout", "float64", "train.py:6"),
        ("uniform_", "float32", "train.py:7"),
    ]
    assert events[1]["error"].startswith("RuntimeError: _npu_dropout")
    assert [event["count"] for event in events] == [1000, 0, 96]
