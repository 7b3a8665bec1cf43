"""Numbers of a key and keys of a draw: distributions, what differs and what comes again. No torch."""

from __future__ import annotations

import math
import subprocess
import sys
from statistics import NormalDist

import numpy
import pytest

from torchport.record.draws.numbers import Numbers
from torchport.record.draws.streams import Epochs, Stream, hash_parts

COUNT = 200_000
NUMBERS = Numbers()


def distance(drawn: numpy.ndarray, probability_below) -> float:
    """Kolmogorov and Smirnov's largest distance to a distribution, times the square root of the count; above 2 it
    is that distribution once in 1,500."""
    ordered = numpy.sort(drawn.astype(numpy.float64))
    expected = probability_below(ordered)
    steps = numpy.arange(len(ordered) + 1) / len(ordered)
    return math.sqrt(len(ordered)) * max(
        float(numpy.max(steps[1:] - expected)), float(numpy.max(expected - steps[:-1]))
    )


def normal_below(ordered: numpy.ndarray) -> numpy.ndarray:
    return numpy.vectorize(NormalDist().cdf)(ordered)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_are_uniform(dtype: str) -> None:
    drawn = NUMBERS.draw_uniform(1, COUNT, dtype)
    assert drawn.dtype == dtype
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert distance(drawn, lambda ordered: ordered) < 2


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_short_uniform_numbers_are_those_that_the_dtype_holds(dtype: str, bits: int) -> None:
    drawn = NUMBERS.draw_uniform(1, COUNT, dtype) * 2**bits
    assert set(numpy.unique(drawn)) == set(range(2**bits))
    counts = numpy.bincount(drawn.astype(int))
    excess = ((counts - COUNT / 2**bits) ** 2).sum() / (COUNT / 2**bits)
    assert abs(excess - 2**bits) < 5 * math.sqrt(2 * 2**bits)  # chi squared


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers_are_normal(dtype: str) -> None:
    drawn = NUMBERS.draw_normal(1, COUNT, dtype)
    assert abs(drawn.mean()) < 5 / math.sqrt(COUNT)
    assert abs(drawn.var() - 1) < 5 * math.sqrt(2 / COUNT)
    assert distance(drawn[:20_000], normal_below) < 2


def test_the_distance_notices_another_distribution() -> None:
    assert distance(NUMBERS.draw_uniform(1, COUNT, "float32") ** 1.02, lambda ordered: ordered) > 2
    assert distance(NUMBERS.draw_normal(1, 20_000, "float32") * 1.1, normal_below) > 2


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 5), (0, 255), (-(1 << 63), (1 << 63) - 1)])
def test_integers_lie_between_their_bounds(low: int, high: int) -> None:
    drawn = NUMBERS.draw_integers(1, COUNT, low, high)
    share = (drawn.astype(numpy.float64) - low) / (float(high) - low)
    assert 0 <= share.min() < 0.01
    assert 0.99 < share.max() <= 1
    assert abs(share.mean() - 0.5) < 5 * math.sqrt(0.25 / COUNT)


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.1, 0.5, 0.7, 0.9, 1 - 1e-3, 1.0])
def test_a_share_is_kept(p: float) -> None:
    kept = NUMBERS.draw_bernoulli(7, 1_000_000, p)
    assert kept.dtype == numpy.bool_
    assert abs(kept.mean() - p) <= 5 * math.sqrt(p * (1 - p) / 1_000_000)


def test_what_is_kept_does_not_follow_its_neighbour() -> None:
    kept = NUMBERS.draw_bernoulli(7, 1_000_000, 0.9) - 0.9
    for lag in (1, 2, 8, 256):
        assert abs((kept[lag:] * kept[:-lag]).mean() / 0.09) < 5 / math.sqrt(1_000_000)


def test_numbers_depend_on_the_key_alone() -> None:
    first = NUMBERS.draw_uniform(1, 10, "float32")
    NUMBERS.draw_normal(2, 5, "float64")
    assert (NUMBERS.draw_uniform(1, 10, "float32") == first).all()
    assert (Numbers().draw_uniform(1, 1000, "float32")[:10] == first).all()
    assert not (NUMBERS.draw_uniform(2, 10, "float32") == first).any()


def stream(seed: int = 0) -> Stream:
    return Stream(Epochs(), hash_parts("seed", seed))


def test_lines_visits_and_seeds_differ() -> None:
    one = stream()
    keys = [one.next_key(0, 8, lambda line=line: line) for line in ("a:1", "a:1", "a:2", "b:1")]
    keys += [stream(1).next_key(0, 8, lambda: "a:1"), stream().next_key(1, 8, lambda: "a:1")]
    assert len(set(keys)) == len(keys)
    assert stream().next_key(0, 8, lambda: "a:1") == keys[0]


def test_one_draw_more_changes_nothing_elsewhere() -> None:
    one, other = stream(), stream()
    other.next_key(0, 8, lambda: "only here")
    other.next_key(1, 5, lambda: "a:1")
    for line in ("a:1", "a:2", "a:1"):
        assert one.next_key(0, 8, lambda line=line: line) == other.next_key(0, 8, lambda line=line: line)


def test_the_same_seed_gives_the_same_on_another_line() -> None:
    one = stream()
    first = [one.next_key(0, 8, lambda: "model:1") for _ in range(3)]
    one.go_to_epoch(hash_parts("seed", 0))
    assert [one.next_key(0, 8, lambda: "model:2") for _ in range(3)] == first
    assert one.next_key(0, 8, lambda: "model:1") not in first


def test_a_saved_point_is_returned_to() -> None:
    epochs = Epochs()
    one = Stream(epochs, 5)
    before = one.next_key(0, 8, lambda: "a")
    epochs.save_point(b"state", one.current_point())
    after = [one.next_key(0, 8, lambda: "a") for _ in range(4)]
    point = epochs.find_point(b"state")
    assert point is not None
    one.go_to(point)
    assert [one.next_key(0, 8, lambda: "b") for _ in range(2)] == after[:2]
    epochs.save_point(b"later", one.current_point())
    one.go_to_epoch(6)
    assert one.next_key(0, 8, lambda: "a") not in (before, *after)
    later = epochs.find_point(b"later")
    assert later is not None
    one.go_to(later)
    assert one.next_key(0, 8, lambda: "b") == after[2]
    assert epochs.find_point(b"never") is None


def test_a_stream_goes_on_behind_all_that_was_drawn() -> None:
    """DTensor restores the old state after each draw, and puts one of its own there for the next."""
    epochs = Epochs()
    one = Stream(epochs, 5)
    point = one.current_point()
    seen = []
    for _ in range(3):
        one.go_on()
        seen.append(one.next_key(0, 8, lambda: "a"))
        one.go_to(point)
    assert len(set(seen)) == 3
    one.go_on()
    assert one.current_point().mark != point.mark


def test_points_are_told_apart() -> None:
    one = stream()
    marks = [one.mark]
    for line in ("a", "a", "b"):
        one.next_key(0, 8, lambda line=line: line)
        marks.append(one.mark)
    assert len(set(marks)) == 4


PROGRAM = """
import torch
from torchport.patches import Patches
from torchport.record.draws import Draws

native = torch.Generator().manual_seed(1)
expected = torch.rand(4, generator=native)
names = {name: getattr(torch, name) for name in ("rand", "manual_seed", "Generator", "dropout")}
torch.manual_seed(3)
before = torch.rand(4)
patches, told = Patches(), []
draws = Draws(torch, 0, lambda: "here", lambda *what: told.append(what))
draws.install(patches)
torch.manual_seed(3)
ours = torch.rand(4)
assert not torch.equal(ours, before)
assert torch.equal(torch.rand(4, generator=torch.Generator().manual_seed(1)), expected)
x = torch.ones(1000, requires_grad=True)
out = torch.nn.functional.dropout(x, 0.25)
out.sum().backward()
assert torch.equal(out, x.grad)
assert set(out.tolist()) == {0.0, x.grad.max().item()} and abs(out.mean() - 1) < 0.1
draws.step_done()
draws.step_done()
assert told == []
patches.undo()
torch.manual_seed(3)
assert torch.equal(torch.rand(4), before)
assert names == {name: getattr(torch, name) for name in names}
assert not hasattr(torch, "npu")
print("done")
"""


# What torch before 2.9 does not have, and releases after it will not lose.
OLDER = "import torch\ndel torch.library.get_kernel\n"
STEPPING_ASIDE = (
    OLDER
    + """
from torchport.patches import Patches
from torchport.record.draws import Draws

def seeded(seed):
    generator = torch.Generator().manual_seed(seed)
    found = torch.randperm(50, generator=generator), torch.rand(50, generator=generator)
    return *found, torch.empty(50).exponential_(generator=generator), torch.bernoulli(found[1], generator=generator)

def refused():
    for wrong in (lambda: torch.rand(3).normal_(0, -1), lambda: torch.rand(3).uniform_(2, 1)):
        try:
            wrong()
        except RuntimeError:
            pass
        else:
            raise AssertionError("torch refuses that")

patches, told = Patches(), []
expected = [seeded(seed) for seed in range(3)]
x = torch.ones(8)
Draws(torch, 0, lambda: "here", lambda *what: told.append(what)).install(patches)
for _ in range(3):
    torch.manual_seed(3)
    ours = torch.rand(4)
    for seed in range(3):
        assert all(map(torch.equal, seeded(seed), expected[seed]))
    refused()
    assert torch.dropout(x, 0.5, False) is x or torch.equal(torch.dropout(x, 0.5, False), x)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4), ours), "ours is back"
assert told == []
patches.undo()
torch.manual_seed(3)
assert not torch.equal(torch.rand(4), ours)
print("done")
"""
)


@pytest.mark.processes
@pytest.mark.parametrize("program", [PROGRAM, OLDER + PROGRAM, STEPPING_ASIDE], ids=["handles", "older", "aside"])
def test_it_works_without_a_device(program: str) -> None:
    """With torch alone, as on a machine that makes the reference; also where kernels have to step aside."""
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PATH": "/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert (run.stdout, run.stderr) == ("done\n", "")
