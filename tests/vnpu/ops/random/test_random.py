"""Random numbers: the generator against published values, distributions, and what a result depends on."""

import math

import aclnn
import pytest
import torch
from oracle import FLOATS

COUNT = 20000
# Largest distance of a sample's distribution function from the true one (Kolmogorov, Smirnov), beyond which a
# correct generator lies once in 1e4 times.
DISTANCE = 2.23 / COUNT**0.5


def philox(seed, offset, block):
    """Philox4x32-10, written from the paper."""
    mask = 0xFFFFFFFF
    c = [block & mask, block >> 32, offset & mask, offset >> 32]
    k = [seed & mask, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & mask, p >> 32 ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def distance(sample, distribution):
    values = distribution(sample.cpu().double().sort().values)
    steps = torch.arange(len(values) + 1, dtype=torch.float64) / len(values)
    return max((values - steps[:-1]).max(), (steps[1:] - values).max()).item()


def test_philox_has_its_published_values():
    # Random123's known answers: counter and key of zeros, of ones, of the digits of pi.
    assert philox(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(2**64 - 1, 2**64 - 1, 2**64 - 1) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox(0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (1234567890123, 40), (2**63 - 1, 2**40)])
def test_numbers_are_philox(seed, offset):
    out = torch.zeros(11, device="npu")
    aclnn.run("aclnnInplaceUniform", out, 0.0, 1.0, seed, offset)
    words = [word for block in range(3) for word in philox(seed, offset, block)]
    assert out.tolist() == [(word >> 8) / 2**24 for word in words[:11]]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64])
def test_uniform(dtype):
    out = torch.empty(COUNT, dtype=dtype, device="npu").uniform_(-1, 3)
    assert out.min().item() >= -1
    assert out.max().item() < 3
    allowed = DISTANCE + (0.01 if dtype == torch.bfloat16 else 0)  # its steps
    assert distance(out, lambda x: (x + 1) / 4) < allowed


def test_uniform_excludes_its_end_in_every_dtype():
    for dtype in FLOATS:
        out = torch.empty(COUNT, dtype=dtype, device="npu").uniform_(1, 1 + 4 * torch.finfo(dtype).eps)
        assert out.max().item() < 1 + 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64])
def test_normal(dtype):
    out = torch.empty(COUNT, dtype=dtype, device="npu").normal_(2, 3)
    allowed = DISTANCE + (0.005 if dtype == torch.bfloat16 else 0)
    assert distance(out, lambda x: (1 + torch.erf((x - 2) / (3 * math.sqrt(2)))) / 2) < allowed
    sample = out.cpu().double()
    for lag in (1, 2, 3, 4):
        assert abs(((sample[lag:] - 2) * (sample[:-lag] - 2)).mean() / 9) < 5 / COUNT**0.5


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_numbers_are_cut_to_integers(dtype):
    """Which torch refuses: drawn in float32 and cast."""
    whole, real = torch.empty(COUNT, dtype=dtype, device="npu"), torch.empty(COUNT, device="npu")
    for name, *bounds in (("aclnnInplaceUniform", 1.0, 90.0), ("aclnnInplaceNormal", 60.0, 5.0)):
        for out in (whole, real):
            aclnn.run(name, out, *bounds, 7, 0)
        assert whole.cpu().equal(real.cpu().trunc().to(dtype))
    assert real.std().item() == pytest.approx(5, rel=0.1)


def test_normal_numbers_as_truth_values():
    out = torch.zeros(COUNT, dtype=torch.bool, device="npu")
    aclnn.run("aclnnInplaceNormal", out, 0.0, 1.0, 7, 0)
    assert out.all()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_integers_as_complex_numbers(dtype):
    out, whole = torch.empty(COUNT, dtype=dtype, device="npu"), torch.empty(COUNT).long().npu()
    for each in (out, whole):
        aclnn.run("aclnnInplaceRandom", each, 3, 10, 7, 0)
    assert out.cpu().equal(whole.cpu().to(dtype))
    aclnn.run("aclnnInplaceRandomWithoutFromTo", out, 7, 0)
    real = out.cpu().real
    assert real.equal(real.round()) and 2**20 < real.max() <= 2 ** (24 if dtype == torch.complex64 else 53)


def test_normal_of_tensors():
    mean = torch.tensor([0.0, 10.0], device="npu")
    deviation = torch.tensor([[1.0], [3.0]], device="npu")
    for out, means, deviations in (
        (torch.normal(mean.expand(COUNT, 2), 2.0), [0, 10], [2, 2]),
        (torch.normal(5.0, deviation.mT.expand(COUNT, 2)), [5, 5], [1, 3]),
        (torch.normal(mean.expand(COUNT, 2), deviation.mT.expand(COUNT, 2)), [0, 10], [1, 3]),
        (torch.normal(1.0, 2.0, (COUNT, 2), device="npu"), [1, 1], [2, 2]),
    ):
        for column, m, d in zip(out.cpu().double().T, means, deviations, strict=True):
            assert abs(column.mean() - m) < 5 * d / COUNT**0.5
            assert abs(column.std() / d - 1) < 5 / COUNT**0.5


@pytest.mark.parametrize(
    "dtype",
    [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.float32, torch.float16, torch.bfloat16],
)
def test_integers(dtype):
    counts = torch.randint(3, 10, (COUNT,), dtype=dtype, device="npu").cpu().long().bincount(minlength=10)
    assert counts[:3].tolist() == [0, 0, 0]
    assert len(counts) == 10
    expected = COUNT / 7
    assert ((counts[3:] - expected) ** 2 / expected).sum() < 30  # chi-squared with 6 degrees of freedom: once in 2e4


@pytest.mark.parametrize(
    ("dtype", "bounds"), [(torch.float16, (0, 4000)), (torch.float16, (65000, 65504)), (torch.bfloat16, (-1000, 1000))]
)
def test_integers_are_not_rounded_to_their_end(dtype, bounds):
    drawn = torch.empty(COUNT, dtype=dtype, device="npu").random_(*bounds)
    assert bounds[0] <= drawn.min().item() and drawn.max().item() < bounds[1]


def test_integers_of_the_whole_range():
    out = torch.empty(COUNT, dtype=torch.int64, device="npu").random_().cpu()
    assert out.min() >= 0
    assert out.max() > 2**62
    wide = torch.empty(COUNT, dtype=torch.int64, device="npu").random_(-(2**63), 2**63 - 1).cpu()
    assert distance(wide.double(), lambda x: (x + 2.0**63) / 2.0**64) < DISTANCE
    assert set(torch.empty(100, dtype=torch.bool, device="npu").random_().tolist()) <= {False, True}


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool])
def test_bernoulli(dtype):
    out = torch.empty(COUNT, dtype=dtype, device="npu").bernoulli_(0.2).cpu().double()
    assert set(out.tolist()) == {0, 1}
    assert abs(out.mean() - 0.2) < 5 * (0.16 / COUNT) ** 0.5
    for p in (0.0, 1.0):
        assert torch.empty(100, dtype=dtype, device="npu").bernoulli_(p).cpu().double().mean() == p


def test_bernoulli_of_tensors():
    p = torch.tensor([0.0, 0.1, 0.7, 1.0]).expand(COUNT, 4).npu()
    for out in (torch.bernoulli(p), torch.empty(COUNT, 4, device="npu").bernoulli_(p[0])):
        mean = out.cpu().double().mean(0)
        assert torch.equal(mean[[0, 3]], torch.tensor([0, 1], dtype=torch.float64))
        assert torch.allclose(mean[1:3], torch.tensor([0.1, 0.7], dtype=torch.float64), atol=0.017)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.float32, torch.float16])
def test_permutations(dtype):
    order = torch.randperm(200, dtype=dtype, device="npu")
    assert order.dtype == dtype
    assert sorted(order.cpu().tolist()) == list(range(200))
    assert order.cpu().tolist() != list(range(200))
    assert torch.randperm(0, device="npu").shape == (0,)


def test_permutations_are_equally_likely():
    first = torch.stack([torch.randperm(4, device="npu") for _ in range(2000)]).cpu()
    index = (first * torch.tensor([64, 16, 4, 1])).sum(1).unique(return_counts=True)[1]
    assert len(index) == 24
    assert ((index - 2000 / 24) ** 2 / (2000 / 24)).sum() < 60  # 23 degrees of freedom


def test_multinomial_with_replacement():
    weights = torch.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 0.0, 0.0, 2.0]])
    out = torch.multinomial(weights.npu(), COUNT, replacement=True).cpu()
    assert out.dtype == torch.int64
    for row, weight in zip(out, weights, strict=True):
        shares = row.bincount(minlength=4) / COUNT
        assert torch.allclose(shares, weight / weight.sum(), atol=5 * (0.25 / COUNT) ** 0.5)
        assert not shares[weight == 0].any()


def test_multinomial_without_replacement():
    weights = torch.tensor([1.0, 2.0, 0.0, 4.0]).expand(4000, 4)
    out = torch.multinomial(weights.npu(), 3).cpu()
    assert (out.sort(1).values == torch.tensor([0, 1, 3])).all()
    first = out[:, 0].bincount(minlength=4) / 4000
    assert torch.allclose(first, weights[0] / 7, atol=5 * (0.25 / 4000) ** 0.5)
    second = out[out[:, 0] == 3][:, 1].bincount(minlength=4) / (out[:, 0] == 3).sum()
    assert torch.allclose(second, torch.tensor([1 / 3, 2 / 3, 0, 0]), atol=0.05)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(100, device="npu"),
        lambda: torch.randn(100, device="npu"),
        lambda: torch.randint(1000, (100,), device="npu"),
        lambda: torch.randperm(100, device="npu"),
        lambda: torch.bernoulli(torch.full((100,), 0.5, device="npu")),
        lambda: torch.empty(100, device="npu").bernoulli_(0.5),
        lambda: torch.multinomial(torch.ones(50, device="npu"), 20),
        lambda: torch.normal(torch.zeros(100, device="npu"), 1.0),
    ],
)
def test_a_draw_depends_on_the_generator_alone(draw):
    torch.npu.manual_seed(7)
    first, second = draw().cpu(), draw().cpu()
    assert not torch.equal(first, second)
    state = torch.npu.get_rng_state()
    third = draw().cpu()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        torch.npu.manual_seed(7)
        assert torch.equal(draw().cpu(), first)
        torch.rand(10)  # the CPU's generator has no part in it
        assert torch.equal(draw().cpu(), second)
    finally:
        torch.set_num_threads(threads)
    torch.npu.set_rng_state(state)
    assert torch.equal(draw().cpu(), third)
    torch.npu.manual_seed(8)
    assert not torch.equal(draw().cpu(), first)


def test_generators_and_fork():
    one, other = (torch.Generator("npu").manual_seed(3) for _ in range(2))
    a = torch.rand(50, device="npu", generator=one)
    torch.rand(50, device="npu")
    assert torch.equal(a, torch.rand(50, device="npu", generator=other))
    assert not torch.equal(a, torch.rand(50, device="npu", generator=other))
    before = torch.npu.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        torch.rand(50, device="npu")
    assert torch.equal(torch.npu.get_rng_state(), before)


def test_parallel_filling_equals_serial():
    count = 100_000  # more than one grain for a thread
    torch.npu.manual_seed(1)
    parallel = torch.randn(count, device="npu").cpu()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        torch.npu.manual_seed(1)
        assert torch.equal(torch.randn(count, device="npu").cpu(), parallel)
    finally:
        torch.set_num_threads(threads)


def test_views_get_the_values_of_contiguous_tensors():
    for fill in (lambda t: t.uniform_(), lambda t: t.normal_(), lambda t: t.random_(0, 9), lambda t: t.bernoulli_(0.5)):
        torch.npu.manual_seed(2)
        plain = fill(torch.zeros(5, 7, device="npu"))
        torch.npu.manual_seed(2)
        storage = torch.zeros(7, 5, 2, device="npu")
        assert torch.equal(fill(storage[..., 0].mT), plain)
        assert not storage[..., 1].cpu().any()
    torch.empty(0, device="npu").normal_()
    assert torch.empty((), device="npu").uniform_().shape == ()


def test_first_phase_refuses():
    x = torch.zeros(4, device="npu")
    for name, arguments, text in (
        ("aclnnInplaceUniform", (x, 2.0, 1.0, 0, 0), "from is 2, greater than to, which is 1"),
        ("aclnnInplaceUniform", (x.bool(), 0.0, 1.0, 0, 0), "selfRef has dtype bool"),
        ("aclnnInplaceNormal", (x, 0.0, -1.0, 0, 0), "std is -1, allowed is >= 0"),
        ("aclnnInplaceRandom", (x, 3, 3, 0, 0), "from is 3, expected less than to, which is 3"),
        ("aclnnInplaceBernoulli", (x, 1.5, 0, 0), "prob is 1.5"),
        ("aclnnRandperm", (5, 0, 0, x), "out has shape [4], expected [5]"),
        (
            "aclnnMultinomial",
            (x, 5, False, 0, 0, torch.zeros(5, dtype=torch.int64, device="npu")),
            "numsamples is 5, allowed is 1 to 4",
        ),
        ("aclnnMultinomial", (x, 2, False, 0, 0, x[:2]), "out has dtype float32"),
    ):
        status, message = aclnn.first_phase(name, *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("Uniform", (0.0, 1.0)), ("Normal", (0.0, 1.0)), ("Random", (0, 1000)), ("RandomWithoutFromTo", ())],
)
def test_a_state_in_device_memory_gives_the_same_numbers(name, arguments):
    """What torch_npu calls while it captures a graph: the offset's parts add up."""
    seed, offset = torch.tensor([77]).npu(), torch.tensor([40]).npu()
    plain, stateful = (torch.empty(100, device="npu") for _ in range(2))
    aclnn.run(f"aclnnInplace{name}", plain, *arguments, 77, 48)
    aclnn.run(f"aclnnInplace{name}Tensor", stateful, *arguments, seed, offset, 8)
    assert torch.equal(plain.cpu(), stateful.cpu()) and len(plain.cpu().unique()) > 50


def test_an_unsigned_state_in_device_memory():
    signed, unsigned = torch.empty(COUNT, device="npu"), torch.empty(COUNT, device="npu")
    for out, dtype in ((signed, torch.int64), (unsigned, torch.uint64)):
        seed, offset = (torch.tensor([value], device="npu").view(dtype) for value in (-7, 4))
        aclnn.run("aclnnInplaceUniformTensor", out, 0.0, 1.0, seed, offset, 8)
    assert signed.cpu().equal(unsigned.cpu())


def test_multinomial_with_a_state_in_device_memory():
    weights = torch.rand(50).npu()
    plain, stateful = (torch.empty(20, dtype=torch.int64, device="npu") for _ in range(2))
    aclnn.run("aclnnMultinomial", weights, 20, False, 5, 8, plain)
    aclnn.run(
        "aclnnMultinomialTensor", weights, 20, False, torch.tensor([5]).npu(), torch.tensor([4]).npu(), 4, stateful
    )
    assert torch.equal(plain.cpu(), stateful.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool])
def test_integers_without_bounds(dtype):
    out = torch.empty(COUNT, device="npu", dtype=dtype)
    aclnn.run("aclnnInplaceRandomWithoutFromTo", out, 3, 8)
    top = {torch.float32: 2**24, torch.int64: 2**63 - 1, torch.uint8: 255, torch.bool: 1}[dtype]
    values = out.cpu().double()
    assert values.min() >= 0 and values.max() <= top
    assert abs(values.mean() / top - 0.5) < 5 * (1 / 12 / COUNT) ** 0.5 * (2 if dtype == torch.bool else 1)


def test_exponential():
    out = torch.empty(COUNT, device="npu")
    aclnn.run("aclnnSimThreadExponential", out, COUNT, 2.5, 3, 8)
    assert distance(out, lambda x: 1 - torch.exp(-2.5 * x)) < DISTANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_element_is_filled_whatever_the_length(dtype):
    for length in range(1, 10):  # a block of the generator is four numbers, or two
        x = torch.full((length,), -7.0, dtype=dtype, device="npu")
        assert bool(x.uniform_().ge(0).all()), (length, x)
