"""Rounding noise: one unit in the last place and not two, where numbers were rounded, and nothing else."""

import math

import pytest
import recorded
from recorded import TRAIN

from torchport.record import roundoff
from torchport.record.recording import CALL

pytestmark = pytest.mark.processes

# `plain` is what a module gives, before anything is moved: modules are called through their forward.
CHECK = """
import math
def check(module, *given, **options):
    plain = module.forward(*[one.clone() if torch.is_tensor(one) else one for one in given])
    moved = module(*given, **options)
    return plain, moved
def places(plain, moved):
    "By how many numbers of the dtype each number was moved."
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.element_size()]
    return (moved.detach().contiguous().view(kind).long() - plain.detach().contiguous().view(kind).long()).abs()
"""


def seen(folder, text, noise=1, **options):
    return recorded.run(folder, CHECK + text, noise=noise, kind=CALL, steps=None, **options)[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_noise_is_one_unit_in_the_last_place(tmp_path, dtype):
    found = seen(
        tmp_path / "one",
        f"""
layer = torch.nn.LeakyReLU(0.3)
x = torch.randn(4000, generator=torch.Generator().manual_seed(1)).to(torch.{dtype})
plain, moved = check(layer, x)
assert moved.dtype is torch.{dtype}
keep("places", places(plain, moved))
keep("up", (moved > plain).double().mean())
""",
    )
    ((places,),) = found["places"]
    assert set(places) <= {0, 1}
    assert sum(places) > 0.95 * len(places)
    assert abs(found["up"][0][0][0] - 0.5) < 0.1


def test_without_noise_nothing_is_moved(tmp_path):
    text = "plain, moved = check(torch.nn.LeakyReLU(0.3), torch.randn(99)); keep('places', places(plain, moved))"
    assert set(seen(tmp_path / "one", text, noise=0)["places"][0][0]) == {0}


def test_whole_numbers_stay(tmp_path):
    """BCELoss refuses 1.0000001, and a mask of -0.0000001 is no mask."""
    found = seen(
        tmp_path / "one",
        """
layer = torch.nn.Sigmoid()
p = layer(torch.tensor([200.0, -200.0, 0.3], requires_grad=True))
torch.nn.BCELoss()(p, torch.tensor([1.0, 0.0, 1.0])).backward()
keep("p", p)
keep("infinite", torch.nn.ReLU()(torch.tensor([math.inf, 5.0, -1.0])))
""",
    )
    assert found["p"][0][0][:2] == [1.0, 0.0]
    assert found["infinite"][0][0] == [math.inf, 5.0, 0.0]


def test_only_innermost_calls_are_moved_and_each_once(tmp_path):
    found = seen(
        tmp_path / "one",
        """
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.LeakyReLU(0.5)
        self.unused = torch.nn.Identity()
    def forward(self, x):
        return self.inner(x)
class Alone(Outer):
    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, 0.5)
x = torch.randn(500)
for kind in (Outer, Alone):
    plain = torch.nn.functional.leaky_relu(x, 0.5)
    keep("places", places(plain, kind()(x)))
""",
    )
    for (places,) in found["places"]:
        assert set(places) <= {0, 1}
        assert sum(places) > 450


def test_tuples_packed_sequences_and_integers(tmp_path):
    found = seen(
        tmp_path / "one",
        """
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
lstm = torch.nn.LSTM(3, 4)
plain, moved = check(lstm, torch.randn(5, 2, 3))
assert isinstance(moved, tuple) and isinstance(moved[1], tuple)
keep("places", *[places(a, b) for a, b in ((plain[0], moved[0]), (plain[1][0], moved[1][0]), (plain[1][1], moved[1][1]))])
packed = pack_padded_sequence(torch.randn(5, 2, 3), [5, 3])
assert isinstance(lstm(packed)[0], PackedSequence)
class Index(torch.nn.Module):
    def forward(self, x):
        return {"index": x.argmax(1), "none": None, "values": [x * 1.1]}
x = torch.randn(6, 6)
given = Index()(x)
assert torch.equal(given["index"], x.argmax(1)) and given["none"] is None
keep("places", places(x * 1.1, given["values"][0]))
""",
    )
    for row in found["places"]:
        for places in row:
            assert set(places) <= {0, 1}
            assert sum(places) > 0.9 * len(places)


def test_gradients_are_moved_by_one_unit_and_modules_in_place_work(tmp_path):
    found = seen(
        tmp_path / "one",
        """
x = torch.randn(300, requires_grad=True)
layer = torch.nn.Linear(300, 20)
weight = torch.randn(20)
(layer(x) * weight).sum().backward()
keep("gradient", x.grad, layer.bias.grad, layer.weight.detach().t() @ weight, weight)
keep("penalty", *torch.autograd.grad(torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)[0].sum(), layer.weight))
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1, inplace=True), torch.nn.ReLU(inplace=True))
net(torch.randn(3, 4)).sum().backward()
plain = torch.randn(5)
same = torch.nn.Identity()(plain)
assert same is plain
""",
    )
    gradient, bias, expected, weight = found["gradient"][0]
    assert gradient == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert bias == pytest.approx(weight, rel=2**-22)
    assert all(one != other for one, other in zip(bias, weight, strict=True))
    assert len(found["penalty"][0][0]) == 6000


def test_the_noise_moves_no_generator_and_no_statistics(tmp_path):
    """The script draws the same numbers, sees the same states, and its BatchNorm counts as before."""
    plain, own = recorded.run(tmp_path / "plain", TRAIN + "keep('state', torch.get_rng_state())")
    noisy, other = recorded.run(tmp_path / "noisy", TRAIN + "keep('state', torch.get_rng_state())", noise=1)
    assert own["own numbers"] == other["own numbers"]
    assert own["inputs"] == other["inputs"]
    assert plain.of_kind("random") == noisy.of_kind("random") == []
    for right, wrong in zip(own["own buffers"][0], other["own buffers"][0], strict=True):
        assert wrong == pytest.approx(right, rel=1e-5, abs=1e-8)
    losses = [[event["value"] for event in one.of_kind("loss")] for one in (plain, noisy)]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_module_that_is_computed_again_is_moved_as_before(tmp_path, reentrant):
    """A router beside activation checkpointing: which rows go on hangs on the noise, and their number is checked."""
    found = seen(
        tmp_path / "one",
        f"""
from torch.utils.checkpoint import checkpoint
layer = torch.nn.LeakyReLU(0.5)
plain = torch.randn(500)
def route(x):
    chosen = layer(x) > torch.nn.functional.leaky_relu(plain, 0.5)
    return x[chosen] * x[chosen].exp()
for _ in range(3):
    x = plain.clone().requires_grad_()
    rows = checkpoint(route, x, use_reentrant={reentrant})
    rows.sum().backward()
    keep("rows", torch.tensor([len(rows), int((x.grad != 0).sum())]))
""",
    )
    for ((rows, moved),) in found["rows"]:
        assert rows == moved and 100 < rows < 400


def test_noise_is_the_same_in_each_run(tmp_path):
    losses = [
        [event["value"] for event in recorded.run(tmp_path / name, TRAIN, noise=1)[0].of_kind("loss")]
        for name in ("one", "two")
    ]
    assert losses[0] == losses[1]


def test_data_loaders_of_their_own_process_load_what_they_did(tmp_path):
    text = """
layer = torch.nn.LeakyReLU(0.3)
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, place):
        return layer(torch.arange(1.0, 9.0).neg() / 7)
for x in torch.utils.data.DataLoader(Data(), num_workers=1):
    keep("places", places(torch.nn.functional.leaky_relu(torch.arange(1.0, 9.0).neg() / 7, 0.3), x[0]))
"""
    assert {one for row in seen(tmp_path / "one", text)["places"] for one in row[0]} == {0}


def test_declared_formats_round_as_much_as_they_do(tmp_path):
    text = """
x = torch.randn(8, 3, 9, 9)
for layer in (torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(9, 5), torch.nn.Conv2d(3, 4, 3).bfloat16()):
    given = x.bfloat16() if layer.weight.dtype is torch.bfloat16 else x
    plain, moved = check(layer, given)
    keep("error", (moved - plain).double().square().mean().sqrt() / plain.double().square().mean().sqrt())
"""
    recording, found = recorded.run(
        tmp_path / "one", CHECK + text, noise=1, roundoffs={"convolution": "hf32"}, kind=CALL, steps=None
    )
    convolution, linear, half = (row[0][0] for row in found["error"])
    assert 2**-12 <= convolution < 2**-11  # HF32 rounds to 2^-12
    assert 2**-26 < linear < 2**-23
    assert 2**-9 < half < 2**-7  # bfloat16 has its own
    assert recording.of_kind("device")[0]["settings"] == {"convolution": "hf32"}


def test_formats_have_names_and_sources():
    rows = roundoff.describe_formats({"convolution": "hf32", "matmul": "float32"})
    assert [(row.name, row.roundoff) for row in rows] == [("HF32 convolution", 2**-12)]
    assert "hiascend" in rows[0].source


def test_what_a_run_declared(tmp_path):
    from recordings import losses, write

    def device(**settings):
        return {"kind": "device", "settings": settings}

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    virtual = write(tmp_path / "a", [device(convolution="hf32", matmul="float32", virtual=True), *losses([1.0])])
    chip = write(
        tmp_path / "b",
        [
            device(convolution="hf32", matmul="float32", virtual=False),
            *losses([1.0]),
            device(convolution="float32", matmul="float16", virtual=False),
        ],
    )
    assert roundoff.read_declared_formats(virtual) == {}
    assert roundoff.read_declared_formats(chip) == {"convolution": "hf32", "matmul": "float16"}


def test_masks_among_the_weights_stay(tmp_path):
    found = seen(
        tmp_path / "weights",
        """
from torchport.record.noise import own_generator, perturb_weights
mask = torch.tensor([0.0, 1.0, 1.0])
keep("mask", perturb_weights(torch, mask, own_generator(torch, 1)))
weight = torch.rand(100, generator=torch.Generator().manual_seed(1))
keep("places", places(weight, perturb_weights(torch, weight, own_generator(torch, 1))))
""",
    )
    assert found["mask"][0][0] == [0, 1, 1]
    assert set(found["places"][0][0]) == {1}
