"""Two layers in one kernel, of one expert or of several, against float64."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import random

ACTIVATIONS = {
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("experts", [None, "counts", "ends"])
@pytest.mark.parametrize("bias", [False, True])
def test_ffn(dtype: torch.dtype, activation: str, experts: str | None, bias: bool) -> None:
    count, kind = 3 if experts else 1, torch.float32 if dtype == torch.bfloat16 else dtype
    x = random(5, 16).to(dtype)
    first, second = random(count, 16, 24, seed=1).to(dtype), random(count, 24, 8, seed=2).to(dtype)
    biases = [random(count, width, seed=width).to(kind) if bias else torch.zeros(count, width) for width in (24, 8)]
    which = torch.tensor([0, 0, 2, 2, 2]) if experts else torch.zeros(5, dtype=torch.int64)

    def layer(rows: torch.Tensor, weight: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        return (rows.double().unsqueeze(1) @ weight.double()[which]).squeeze(1) + added.double()[which]

    inner = ACTIVATIONS[activation](layer(x, first, biases[0])).to(dtype)
    expected = layer(inner, second, biases[1])
    weights = (first, second) if experts else (first[0], second[0])
    given = [(each if experts else each[0]).npu() if bias else None for each in biases]
    out = torch_npu.npu_ffn(
        x.npu(),
        weights[0].npu(),
        weights[1].npu(),
        activation,
        bias1=given[0],
        bias2=given[1],
        expert_tokens=[2, 0, 3] if experts == "counts" else None,
        expert_tokens_index=[2, 2, 5] if experts == "ends" else None,
        inner_precise=0,
    )
    near = 1e-2 if dtype == torch.float16 else 8e-2
    torch.testing.assert_close(out.cpu().double(), expected, rtol=near, atol=near)


@pytest.mark.parametrize(("activation", "precise"), [("tanh", 0), ("relu", 2)])
def test_refused(activation: str, precise: int) -> None:
    half = [torch.ones(*shape, dtype=torch.float16).npu() for shape in ((2, 8), (8, 16), (16, 4), (2, 4))]

    def said(activation: str, precise: int) -> int:
        return first_phase("aclnnFFNV2", *half[:3], None, *[None] * 10, activation, precise, False, half[3])[0]

    assert said("ReLU", 1) == 0
    assert said(activation, precise) == INVALID_ARGUMENT


def test_the_first_version_takes_counts() -> None:
    x, first, second = (random(*shape, seed=i).half() for i, shape in enumerate(((5, 16), (3, 16, 24), (3, 24, 8))))
    which = torch.tensor([0, 0, 2, 2, 2])
    inner = torch.relu((x.double().unsqueeze(1) @ first.double()[which]).squeeze(1)).half()
    expected = (inner.double().unsqueeze(1) @ second.double()[which]).squeeze(1)
    y = torch.empty(5, 8, dtype=torch.float16, device="npu")
    run("aclnnFFN", x.npu(), first.npu(), second.npu(), [2, 0, 3], *[None] * 10, "relu", 0, y)
    torch.testing.assert_close(y.cpu().double(), expected, rtol=1e-2, atol=1e-2)
