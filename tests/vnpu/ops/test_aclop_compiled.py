"""Models and draws where torch_npu has operators compiled: the operators of all families go through the old API (aclop)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, by_name, launch
from oracle import check, compare, random
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("compiled")
FLOAT = [torch.float32]
X, Y = random(4, 6), random(4, 6, seed=1)
INDEX = torch.tensor([3, 0, 0, 1])
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "SoftmaxV2": (lambda x: torch.softmax(x, 1), (X,)),
    "LogSoftmaxV2": (lambda x: torch.log_softmax(x, 1), (X,)),
    "MseLoss": (functional.mse_loss, (X, Y)),
    "LayerNorm": (lambda x, w, b: functional.layer_norm(x, [6], w, b), (X, Y[0], Y[1])),
    "GatherV2": (lambda x, i: x.detach().index_select(1, i), (X, INDEX)),
    "ConcatD": (lambda x, y: torch.cat([x, y], 1), (X, Y)),
    "Pack": (lambda x, y: torch.stack([x, y], 1), (X, Y)),
    "Addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.5), (X, Y)),
    "Addcdiv": (lambda x, y: torch.addcdiv(x, y, y + 3, value=0.5), (X, Y)),
    "Lerp": (lambda x, y: torch.lerp(x, y, 0.25), (X, Y)),
    "ClipByValueV2": (lambda x: x.clamp(-0.5, 0.75), (X,)),
    "Select": (lambda x, y: torch.where(x > 0, x, y), (X, Y)),
    "MaskedFill": (lambda x: x.masked_fill(x > 0, 3.0), (X,)),
    "Tile": (lambda x: x.repeat(2, 3), (X,)),
    "Log": (lambda x: (x + 3).log() + (x + 4).log2(), (X,)),
    "Range": (lambda x: x + torch.arange(6, device=x.device, dtype=x.dtype), (X,)),
    "ReduceAll": (lambda x: (x > -1).all(1), (X,)),
    "ReduceAny": (lambda x: (x > 1).any(0), (X,)),
    "ArgMaxV2": (lambda x: x.argmax(1), (X,)),
    "NonZero": (lambda x: x + (x > 0).nonzero()[:, 1].sum(), (X,)),
    "UniqueWithCountsExt2": (lambda x: torch.unique(x.detach().index_select(0, INDEX.to(x.device)), dim=0), (X,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators(name: str) -> None:
    function, inputs = CALLS[name]
    before = by_name(name)
    grad = name != "LayerNorm"  # which gradient is taken depends on the thread: torch_npu keeps the mode per thread
    check(function, *inputs, dtypes=FLOAT, grad=grad, ulps=8, scale=1)
    assert by_name(name) > before, "torch_npu took another path"


def test_cross_entropy_with_weights_and_ignored_targets() -> None:
    target = torch.tensor([2, 5, 1, 0])
    for reduction in ("mean", "sum", "none"):

        def loss(x: Tensor, w: Tensor, t: Tensor, r: str = reduction) -> Tensor:
            return functional.cross_entropy(x, t, w, ignore_index=5, reduction=r)

        check(loss, X, random(6, low=0.5, high=2), target, dtypes=FLOAT, grad=False, ulps=8, scale=1)


def test_a_model_learns_the_same() -> None:
    def train(device: str) -> list[float]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        losses = []
        for step in range(5):
            optimizer.zero_grad()
            x = random(32, 6, seed=step).float().to(device)
            loss = functional.cross_entropy(model(x), (x.sum(1) > 0).long())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train("cpu")
    assert train("npu") == pytest.approx(expected, rel=1e-4) and expected[-1] < expected[0]


def gradients() -> dict[str, tuple[list[Tensor], Tensor, dict[str, Any]]]:
    """By name: inputs, the result in float64, attributes."""
    x, y, g = (t.float().double() for t in (X, Y, random(4, 6, seed=2)))
    leaf, weight, target = x.clone().requires_grad_(), random(6, low=0.5, high=2).float().double(), INDEX
    made: dict[str, tuple[list[Tensor], Tensor, dict[str, Any]]] = {}

    def grad(value: Tensor, given: Tensor = g) -> Tensor:
        return torch.autograd.grad(value, leaf, given)[0]

    gelu = functional.gelu(leaf, approximate="tanh")
    made["Gelu"] = ([x], gelu.detach(), {})
    made["GeluGrad"] = ([g, x, gelu.detach()], grad(gelu), {})
    for name, value, order in (
        ("SoftmaxGrad", torch.softmax(leaf, 1), {"axes": [1]}),
        ("LogSoftmaxGrad", torch.log_softmax(leaf, 1), {"axis": [-1]}),
    ):
        operands = [value.detach(), g] if name == "SoftmaxGrad" else [g, value.detach()]
        made[name] = (operands, grad(value), order)
    made["ThresholdGradV2D"] = ([g, x], torch.where(x > 0.25, g, 0), {"threshold": 0.25})
    one = torch.tensor(0.5, dtype=torch.float64)
    loss = functional.mse_loss(leaf, y)
    made["MseLossGrad"] = ([x, y, one], grad(loss, one), {"reduction": "mean"})
    nll = functional.nll_loss(leaf, target, weight, reduction="sum")
    total = weight[target].sum()
    made["NLLLossGrad"] = ([x, one, target.int(), weight, total], grad(nll, one), {"reduction": "sum"})
    rows = torch.zeros(5, 6, dtype=torch.float64).index_add(0, INDEX, g)
    made["EmbeddingDenseGrad"] = ([g, INDEX.int()], rows, {"num_weights": 5, "padding_idx": -1})
    made["Triu"] = ([x], x.triu(1), {"diagonal": 1})
    made["Tril"] = ([x], x.tril(-1), {"diagonal": -1})
    return made


@pytest.mark.parametrize("name", gradients())
def test_operators_by_name(name: str) -> None:
    inputs, expected, attributes = gradients()[name]
    out = torch.empty(expected.shape, device="npu")
    on_device = [(t.float() if t.is_floating_point() else t).npu() for t in inputs]
    assert launch(name, on_device, [out], **attributes) == (0, "")
    compare(out, expected, torch.float32, ulps=8, scale=1)


def test_refusals() -> None:
    x, y = torch.ones(2, 3).npu(), torch.ones(2, 3).npu()
    status, message = launch("MseLoss", [x, y], [torch.ones(1).npu()], reduction="mean")
    assert status == 0, message
    status, message = launch("MseLoss", [x, y], [torch.ones(1).npu()], reduction="max")
    assert status == INVALID_ARGUMENT and "allowed are none, mean and sum" in message
    status, message = launch("ConcatD", [x, y], [torch.ones(2, 6).npu()], concat_dim=1, N=2)
    assert status == 0, message
    status, message = launch("ConcatD", [x, y], [torch.ones(2, 5).npu()], concat_dim=1, N=2)
    assert status == INVALID_ARGUMENT and "expected 12 elements" in message


@pytest.mark.usefixtures("compiled")
def test_random_numbers_of_compiled_operators() -> None:
    """The same numbers as without compilation."""
    for draw in (lambda: torch.randn(1000, device="npu"), lambda: torch.rand(1000, device="npu")):
        torch.npu.manual_seed(5)
        first = draw().cpu()
        torch.npu.set_compile_mode(jit_compile=False)
        torch.npu.manual_seed(5)
        assert torch.equal(draw().cpu(), first)
        torch.npu.set_compile_mode(jit_compile=True)
    x = torch.tensor([1.0, torch.inf, torch.nan, -torch.inf]).npu()
    assert torch.isfinite(x).tolist() == [True, False, False, False]
    y = random(3, 5).float()
    compare(torch.log_softmax(y.npu(), -1), torch.log_softmax(y.double(), -1), torch.float32, ulps=4)
