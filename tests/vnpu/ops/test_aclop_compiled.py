"""Models where torch_npu has operators compiled, which sends all of them through the old API (aclop)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, launch
from oracle import check, compare, random
from torch import Tensor
from torch.nn import functional

FLOAT = [torch.float32]
X, Y = random(4, 6), random(4, 6, seed=1)
INDEX = torch.tensor([3, 0, 0, 1])


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    torch.npu.set_compile_mode(jit_compile=True)
    yield
    torch.npu.set_compile_mode(jit_compile=False)


def by_name(operator: str) -> int:
    torch.npu.synchronize()
    trace = Path(os.environ["VNPU_TRACE"]).read_text(encoding="utf-8")
    return len(
        re.findall(rf'aclopCompileAndExecute(?:V2)?\("{operator}"', trace)
    )  # V2 where it gives shapes back


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
    "UniqueWithCountsExt2": (
        lambda x: torch.unique(x.detach().index_select(0, INDEX.to(x.device)), dim=0),
        (X,),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators(name: str) -> None:
    function, inputs = CALLS[name]
    before = by_name(name)
    grad = (
        name != "LayerNorm"
    )  # which gradient is taken depends on the thread: torch_npu keeps the mode per thread
    check(function, *inputs, dtypes=FLOAT, grad=grad, ulps=8, scale=1)
    assert by_name(name) > before, "torch_npu took another path"


def test_places_by_dimension() -> None:
    """What torch_npu gives masks of indices to; the next operator, Index, is missing."""
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    out = torch.full((2, 6), -1, device="npu")
    assert launch("NonZero", [x.npu()], [out], transpose=True) == (0, "")
    assert out.flatten()[:6].tolist() == x.nonzero().t().flatten().tolist()


@pytest.mark.parametrize("batched", [True, False])
def test_ctc_loss(batched: bool) -> None:
    x = random(7, 2, 5) if batched else random(7, 5)
    targets = torch.tensor([[1, 2, 3], [4, 4, 0]]) if batched else torch.tensor([1, 2, 3])
    lengths = (torch.tensor([7, 6]), torch.tensor([3, 2])) if batched else (torch.tensor(7), torch.tensor(3))
    before = by_name("CTCLossV2")
    check(
        lambda x, t: functional.ctc_loss(x.log_softmax(-1), t, *lengths),
        x,
        targets,
        dtypes=FLOAT,
        grad=False,
        ulps=16,
    )
    assert by_name("CTCLossV2") > before, "torch_npu took another path"


def test_gradient_of_ctc_loss() -> None:
    """By name: which path the gradient takes depends on the thread."""
    log_probs = random(7, 2, 5).log_softmax(-1).requires_grad_()
    targets, lengths, used = torch.tensor([[1, 2, 3], [4, 4, 0]]), torch.tensor([7, 6]), torch.tensor([3, 2])
    loss, alpha = torch.ops.aten._ctc_loss(log_probs, targets, lengths, used)
    grad = random(2, seed=3)
    (expected,) = torch.autograd.grad(loss, log_probs, grad.to(loss.dtype))
    operands = [t.detach().float().npu() for t in (grad, log_probs, loss, alpha)]
    out = torch.empty(7, 2, 5, device="npu")
    integers = [t.npu() for t in (targets, lengths, used)]
    inputs = [operands[0], operands[1], *integers, operands[2], operands[3]]
    assert launch("CTCLossV2Grad", inputs, [out], blank=0) == (0, "")
    compare(out, expected, torch.float32, ulps=16)


def test_cross_entropy_with_weights_and_ignored_targets() -> None:
    target = torch.tensor([2, 5, 1, 0])
    for reduction in ("mean", "sum", "none"):

        def loss(x: Tensor, w: Tensor, t: Tensor, r: str = reduction) -> Tensor:
            return functional.cross_entropy(x, t, w, ignore_index=5, reduction=r)

        check(loss, X, random(6, low=0.5, high=2), target, dtypes=FLOAT, grad=False, ulps=8, scale=1)


def test_a_model_learns_the_same() -> None:
    def train(device: str) -> list[float]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(
            device
        )
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


@pytest.mark.parametrize("axis", [0, -1])
def test_unique_slices_their_places_and_counts(axis: int) -> None:
    x = torch.tensor([[2.0, 1, 2], [0, 1, 0], [2, 1, 2]])
    found = torch.unique(x.npu(), dim=axis, return_inverse=True, return_counts=True)
    for actual, expected in zip(
        found, torch.unique(x, dim=axis, return_inverse=True, return_counts=True), strict=True
    ):
        assert torch.equal(actual.cpu(), expected)
    assert by_name("UniqueWithCountsExt2") > 0


def test_places_of_nothing_and_of_all() -> None:
    assert torch.zeros(2, 3).npu().nonzero().shape == (0, 2)
    assert torch.equal(torch.ones(2, 2).npu().nonzero().cpu(), torch.ones(2, 2).nonzero())
