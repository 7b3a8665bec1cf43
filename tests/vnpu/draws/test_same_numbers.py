"""Each random function gives the same numbers on the CPU and on the NPU, with the shape, dtype and device of torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchport.patches import Patches
from torchport.record.draws import Draws

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
X = torch.randn(4, 6, 8, 8, generator=torch.Generator().manual_seed(1))

COUNT = 50_000


def empty(device, dtype=torch.float32):
    return torch.empty(30, 20, device=device, dtype=dtype)


FUNCTIONS = {
    "rand": lambda d: [torch.rand(100, device=d, dtype=dtype) for dtype in DTYPES],
    "randn": lambda d: [torch.randn(100, device=d, dtype=dtype) for dtype in DTYPES],
    "rand_double": lambda d: torch.rand(100, device=d, dtype=torch.float64),
    "default_device": lambda d: in_device(d, lambda: torch.rand(5)),
    "requires_grad": lambda d: torch.randn(5, device=torch.device(d), requires_grad=True),
    "out": lambda d: torch.rand(5, out=torch.empty(5, device=d)),
    "like": lambda d: [torch.rand_like(empty(d)), torch.randn_like(empty(d)), torch.randint_like(empty(d), 9)],
    "randint": lambda d: [torch.randint(-3, 9, (50,), device=d), torch.randint(2**40, (50,), device=d)],
    "randperm": lambda d: [torch.randperm(50, device=d), torch.randperm(50, device=d, dtype=torch.int32)],
    "normal": lambda d: torch.normal(2.0, 3.0, (50,), device=d),
    "normal_mean": lambda d: torch.normal(torch.arange(9.0, device=d), 2.0),
    "normal_std": lambda d: torch.normal(1.0, torch.arange(9.0, device=d)),
    "normal_both": lambda d: torch.normal(torch.ones(9, device=d), torch.arange(9.0, device=d)),
    "bernoulli": lambda d: torch.bernoulli(torch.linspace(0, 1, 50, device=d)),
    "bernoulli_p": lambda d: torch.bernoulli(empty(d), 0.3),
    "bernoulli_": lambda d: [empty(d).bernoulli_(0.3), empty(d, torch.bool).bernoulli_(0.3)],
    "bernoulli_tensor": lambda d: torch.empty(50, device=d).bernoulli_(torch.linspace(0, 1, 50, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.arange(1.0, 10, device=d), 4),
    "multinomial_again": lambda d: torch.multinomial(torch.arange(1.0, 10, device=d), 40, True),
    "poisson": lambda d: torch.poisson(torch.arange(9.0, device=d)),
    "uniform_": lambda d: empty(d).uniform_(-2, 3),
    "uniform_transposed": lambda d: empty(d).t().uniform_(),
    "normal_": lambda d: [empty(d, dtype).normal_(-2, 3) for dtype in DTYPES],
    "random_": lambda d: [empty(d).random_(), empty(d, torch.uint8).random_(), empty(d, torch.int64).random_(5)],
    "exponential_": lambda d: empty(d).exponential_(2),
    "geometric_": lambda d: empty(d).geometric_(0.3),
    "log_normal_": lambda d: empty(d).log_normal_(),
    "cauchy_": lambda d: empty(d).cauchy_(),
    "init": lambda d: [nn.init.kaiming_uniform_(empty(d)), nn.init.trunc_normal_(empty(d))],
    "module": lambda d: list(nn.Linear(5, 4, device=d).parameters()),
    "gumbel": lambda d: functional.gumbel_softmax(X[0, 0].to(d), hard=True),
    "inference_mode": lambda d: in_inference_mode(lambda: functional.dropout(torch.ones(50, device=d))),
    "fractional_pool": lambda d: functional.fractional_max_pool2d(X.to(d), 2, output_size=4),
    "generator": lambda d: torch.rand(5, device=d, generator=torch.Generator(d).manual_seed(3)) * 0 + 1,
}


def in_device(device, function):
    with torch.device(device):
        return function()


def in_inference_mode(function):
    with torch.inference_mode():
        return function()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, both, told):
    host, device = both(FUNCTIONS[name])
    for one, other in zip(host, device, strict=True):
        assert one.dtype == other.dtype
        assert one.stride() == other.stride() or name == "like"
        assert torch.equal(one, other)
    assert told == []


def test_where_and_whether_it_requires_grad_is_kept(draws):
    made = torch.randn(5, device="npu", dtype=torch.float16, requires_grad=True)
    assert (made.device.type, made.dtype, made.requires_grad, made.is_leaf) == ("npu", torch.float16, True, True)


LAYERS = {
    "dropout": functional.dropout,
    "dropout1d": lambda x, p: functional.dropout1d(x[0], p),
    "dropout2d": functional.dropout2d,
    "dropout3d": functional.dropout3d,
    "dropout_inplace": lambda x, p: functional.dropout(x * 1, p, inplace=True),
    "alpha_dropout": functional.alpha_dropout,
    "feature_alpha_dropout": functional.feature_alpha_dropout,
    "native_dropout": lambda x, p: torch.native_dropout(x, p, True)[0],
    "rrelu": lambda x, p: functional.rrelu(x, training=True),
    "rrelu_inplace": lambda x, p: functional.rrelu(x * 1, training=True, inplace=True),
    "all": lambda x, p: functional.dropout(x, 1.0),
    "none": lambda x, p: functional.dropout(x, 0.0),
    "stochastic_depth": lambda x, p: x * x.new_empty(len(x), 1, 1, 1).bernoulli_(1 - p).div_(1 - p),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers_and_their_gradients(name, dtype, both, told):
    def train(device):
        x = X.to(device, dtype).detach().clone().requires_grad_()
        out = LAYERS[name](x, 0.3)
        out.float().square().sum().backward()
        return out, x.grad

    host, device = both(train)
    assert all(torch.equal(one, other) for one, other in zip(host, device, strict=True))
    assert told == []


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_dropout_against_its_definition(p, device, draws):
    x = X.to(device).double().float().requires_grad_() if device == "cpu" else X.to(device).requires_grad_()
    out = functional.dropout(x, p)
    weights = torch.rand(X.shape)
    out.backward(weights.to(device))
    kept = out.detach().cpu() != 0
    assert abs(kept.float().mean() - (1 - p)) < 0.05
    torch.testing.assert_close(out.detach().cpu().double(), X.double() * kept / (1 - p), rtol=1e-6, atol=0)
    torch.testing.assert_close(x.grad.cpu().double(), weights.double() * kept / (1 - p), rtol=1e-6, atol=0)


def close(one, other):
    """As exact as sums of float32 are that a machine's BLAS adds in its own order: of the largest value."""
    return all(
        torch.allclose(a, b, rtol=1e-5, atol=1e-6 * max(1.0, float(b.abs().max())))
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("kind", ["causal", "bool", "float", "none"])
def test_attention(kind, both, told):
    mask = (torch.rand(8, 8) < 0.7).logical_or(torch.eye(8).bool())

    def train(device):
        x = X.to(device).detach().clone().requires_grad_()
        given = {"bool": mask, "float": torch.zeros(8, 8).masked_fill(~mask, -9.0)}.get(kind)
        given = None if given is None else given.to(device)
        out = functional.scaled_dot_product_attention(x, x, x, given, 0.3, is_causal=kind == "causal")
        out.square().sum().backward()
        return out, x.grad

    assert close(*both(train))
    assert told == []


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("more", [{}, {"batch_first": True, "bidirectional": True}, {"bias": False}], ids=str)
def test_recurrent_layers(kind, more, both, told):
    weights = kind(6, 5, 3, dropout=0.5, **more).state_dict()
    x = torch.randn(4, 3, 6)

    def train(device):
        net = kind(6, 5, 3, dropout=0.5, **more)
        net.load_state_dict(weights)
        net.to(device)
        torch.manual_seed(5)
        out, end = net(x.to(device))
        out.square().sum().backward()
        return [out, *(end if isinstance(end, tuple) else [end]), net.weight_ih_l0.grad]

    host, device = both(train)
    assert close(host, device)
    without = kind(6, 5, 3, dropout=0.0, **more)
    without.load_state_dict(weights)
    assert not torch.allclose(without(x)[0], host[0], atol=1e-3)  # something was dropped
    assert told == []


def test_multihead_attention(both):
    def attend(device):
        layer = nn.MultiheadAttention(8, 2, dropout=0.3, device=device)
        return layer(*[torch.ones(3, 2, 8, device=device)] * 3)[0]

    assert close(*both(attend))


def test_distributions(both):
    def sample(device):
        def of(value):
            return torch.tensor(value, device=device)

        kinds = torch.distributions
        return [
            kinds.Normal(of(0.0), of(1.0)).rsample((9,)),
            kinds.Gamma(of(2.0), of(1.0)).sample((9,)),
            kinds.Categorical(logits=torch.arange(4.0, device=device)).sample((9,)).float(),
            kinds.Dirichlet(torch.ones(3, device=device)).sample(),
            kinds.Laplace(of(0.0), of(1.0)).sample((9,)),
        ]

    assert close(*both(sample))


WRONG = {
    "std": lambda d: torch.empty(3, device=d).normal_(0, -1),
    "bounds": lambda d: torch.empty(3, device=d).uniform_(2, 1),
    "integer": lambda d: torch.empty(3, device=d, dtype=torch.int64).normal_(),
    "range": lambda d: torch.randint(5, 5, (3,), device=d),
    "dropout": lambda d: functional.dropout(torch.ones(3, device=d), 1.5),
    "bernoulli": lambda d: torch.empty(3, device=d).bernoulli_(1.5),
    "permutation_bool": lambda d: torch.randperm(9, device=d, dtype=torch.bool),
    "permutation_short": lambda d: torch.randperm(300, device=d, dtype=torch.uint8),
    "probability": lambda d: torch.empty(3, device=d).bernoulli_(torch.ones(3, device=d, dtype=torch.int64)),
    "permutation": lambda d: torch.randperm(-1, device=d),
    "leaf": lambda d: torch.ones(3, device=d, requires_grad=True).uniform_(),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_wrong_arguments_are_refused_as_before(name, device):
    def outcome():
        try:
            WRONG[name](device)
        except (RuntimeError, ValueError) as error:  # NotImplementedError is a RuntimeError
            return type(error), str(error).splitlines()[0]
        return None

    expected = outcome()
    patches = Patches()
    Draws(torch, 0, lambda: "here", lambda *what: None).install(patches)
    try:
        assert outcome() == expected
    finally:
        patches.undo()
    # A 910B's first phases take these two (checks.json), where torch refuses them.
    taken = {("npu", "permutation_short"), ("npu", "integer")}
    assert expected is not None or (device, name) in taken


# Mean and variance that the distributions have.
MOMENTS = {
    "rand": (lambda d: torch.rand(COUNT, device=d), 0.5, 1 / 12),
    "rand_half": (lambda d: torch.rand(COUNT, device=d, dtype=torch.float16), 0.5, 1 / 12),
    "randn": (lambda d: torch.randn(COUNT, device=d), 0, 1),
    "randn_complex": (lambda d: torch.view_as_real(torch.randn(COUNT, dtype=torch.complex64)).to(d), 0, 0.5),
    "randint": (lambda d: torch.randint(0, 11, (COUNT,), device=d), 5, 10),
    "uniform": (lambda d: torch.empty(COUNT, device=d).uniform_(-1, 5), 2, 3),
    "normal": (lambda d: torch.normal(2.0, 3.0, (COUNT,), device=d), 2, 9),
    "bernoulli": (lambda d: torch.empty(COUNT, device=d).bernoulli_(0.2), 0.2, 0.16),
    "bernoulli_of": (lambda d: torch.bernoulli(torch.full((COUNT,), 0.2, device=d)), 0.2, 0.16),
    "exponential": (lambda d: torch.empty(COUNT, device=d).exponential_(2), 0.5, 0.25),
    "geometric": (lambda d: torch.empty(COUNT, device=d).geometric_(0.5), 2, 2),
    "log_normal": (lambda d: torch.empty(COUNT, device=d).log_normal_(0, 0.25).log(), 0, 1 / 16),
    "poisson": (lambda d: torch.poisson(torch.full((COUNT,), 4.0, device=d)), 4, 4),
    "binomial": (lambda d: torch.binomial(torch.full((COUNT,), 9.0), torch.tensor(0.5)).to(d), 4.5, 2.25),
    "randperm": (lambda d: torch.randperm(COUNT, device=d), (COUNT - 1) / 2, (COUNT**2 - 1) / 12),
    "multinomial": (lambda d: torch.multinomial(torch.tensor([1.0, 3.0], device=d), COUNT, True), 0.75, 3 / 16),
    "dropout": (lambda d: functional.dropout(torch.ones(COUNT, device=d), 0.2), 1, 0.25),
}


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_mean_and_variance(name, device, draws):
    draw, mean, variance = MOMENTS[name]
    torch.manual_seed(5)
    drawn = draw(device).cpu().double()
    assert abs(drawn.mean() - mean) < 5 * (variance / COUNT) ** 0.5
    # The numbers depend on what the process has drawn before, so the bound is five standard errors, of each distribution.
    fourth = (drawn - mean).pow(4).mean() / variance**2
    assert abs(drawn.var() / variance - 1) < 5 * ((fourth - 1) / COUNT) ** 0.5 + 1e-4


def test_dropout_can_be_differentiated_twice(both):
    def penalty(device):
        x = X.to(device).detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(functional.dropout(x, 0.3).pow(3).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return gradient, x.grad

    host, device = both(penalty)
    assert close(host, device)
    assert (host[1] != 0).any()
