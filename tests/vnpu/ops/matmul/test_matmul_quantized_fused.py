"""Products of int8 with something behind them in the same kernel, against float64."""

from collections.abc import Iterator

import pytest
import torch
import torch_npu
from aclnn import FRACTAL_NZ, INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run
from oracle import int4, random


@pytest.fixture(autouse=True)
def private_formats() -> Iterator[None]:
    """Without it npu_format_cast only changes the name of the format."""
    torch.npu.config.allow_internal_format = True
    yield
    torch.npu.config.allow_internal_format = False


def integers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(-100, 100, shape, dtype=torch.int8, generator=generator)


def nz(weight: torch.Tensor) -> torch.Tensor:
    return torch_npu.npu_format_cast(weight.npu(), FRACTAL_NZ)


@pytest.mark.parametrize("kind", ["gelu_tanh", "gelu_erf"])
@pytest.mark.parametrize("bias", [None, torch.int32, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("laid_out", [False, True])
def test_gelu(kind: str, bias: torch.dtype | None, dtype: torch.dtype, laid_out: bool) -> None:
    x, weight = integers(5, 64), integers(64, 96, seed=1)
    row, scale = random(5, low=0.001, high=0.01).float(), random(96, low=0.001, high=0.01, seed=1).float()
    added = (
        None if bias is None else (random(96, low=-3, high=3, seed=2) * (1000 if bias == torch.int32 else 1)).to(bias)
    )
    value = x.double() @ weight.double()
    if bias == torch.int32:
        value = value + added.double()
    value = value * scale.double() * row.double()[:, None]
    if bias == torch.float32:
        value = value + added.double()
    expected = torch.nn.functional.gelu(value, approximate="tanh" if kind == "gelu_tanh" else "none")
    out = torch.empty(5, 96, dtype=dtype).npu()
    name = "aclnnFusedQuantMatmulWeightNz" if laid_out else "aclnnFusedQuantMatmul"
    right = nz(weight) if laid_out else weight.npu()
    run(
        name,
        x.npu(),
        right,
        row.npu(),
        scale.npu(),
        None,
        None,
        None,
        None,
        None if added is None else added.npu(),
        None,
        kind,
        0,
        out,
    )
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-2, atol=1e-3)


def test_gelu_of_int4() -> None:
    (x, x_words), (weight, weight_words) = int4(3, 16), int4(16, 8, seed=1)
    row, scale = random(3, low=0.01, high=0.1).float(), random(8, low=0.01, high=0.1, seed=1).float()
    out = torch.empty(3, 8, dtype=torch.float16).npu()
    run(
        "aclnnFusedQuantMatmul",
        x_words.npu(),
        weight_words.npu(),
        row.npu(),
        scale.npu(),
        None,
        None,
        None,
        None,
        None,
        None,
        "gelu_erf",
        0,
        out,
    )
    value = x.double() @ weight.double() * scale.double() * row.double()[:, None]
    torch.testing.assert_close(out.cpu().double(), torch.nn.functional.gelu(value), rtol=1e-2, atol=1e-3)


def test_gelu_refuses() -> None:
    def said(kind: str, offset: torch.Tensor | None = None) -> int:
        x, weight, out = (integers(2, 32).npu(), integers(32, 32).npu(), torch.empty(2, 32, dtype=torch.float16).npu())
        scales = torch.ones(2).npu(), torch.ones(32).npu()
        return first_phase(
            "aclnnFusedQuantMatmul", x, weight, *scales, None, offset, None, None, None, None, kind, 0, out
        )[0]

    assert said("gelu_erf") == 0
    assert said("relu") == said("gelu_erf", torch.ones(1).npu()) == INVALID_ARGUMENT


def test_sum_over_a_batch() -> None:
    x, weight = integers(3, 5, 32), integers(3, 32, 64, seed=1)
    row, scale = random(3, 5, low=0.01, high=0.1).float(), random(64, low=0.01, high=0.1, seed=1).bfloat16()
    out = torch.empty(5, 64, dtype=torch.bfloat16).npu()
    nothing = [None] * 5
    arguments = [x.npu(), nz(weight), row.npu(), scale.npu(), *nothing, False, False, 0, [0], False, out]
    run("aclnnQuantMatmulReduceSumWeightNz", *arguments)
    expected = ((x.double() @ weight.double()) * scale.double() * row.double().unsqueeze(-1)).sum(0)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-2, atol=float(expected.abs().mean()) * 1e-2)
    arguments[-3] = [1]
    assert first_phase("aclnnQuantMatmulReduceSumWeightNz", *arguments)[0] == INVALID_ARGUMENT


def routed(counts: list[int], rows: int) -> torch.Tensor:
    """The expert of each row that a group has."""
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))[:rows]


@pytest.mark.parametrize("version", ["first", "list", "laid out"])
@pytest.mark.parametrize("counts", [False, True])
def test_grouped_swiglu_quant(version: str, counts: bool) -> None:
    sizes = [2, 0, 3]
    x, weight = integers(6, 64), integers(3, 64, 64, seed=1)  # the last row belongs to no group
    scale, row = random(3, 64, low=0.001, high=0.01).float(), random(6, low=0.001, high=0.01, seed=1).float()
    groups = torch.tensor(sizes if counts else [2, 2, 5])
    y, by = torch.full((6, 32), 99, dtype=torch.int8).npu(), torch.full((6,), 99.0).npu()
    if version == "first":
        if counts:
            return
        run(
            "aclnnGroupedMatmulSwigluQuantWeightNZ",
            x.npu(),
            nz(weight),
            None,
            None,
            scale.npu(),
            row.npu(),
            groups.npu(),
            y,
            by,
            None,
        )
    else:
        name = "aclnnGroupedMatmulSwigluQuant" + ("V2" if version == "list" else "WeightNzV2")
        right = weight.npu() if version == "list" else nz(weight)
        run(
            name,
            x.npu(),
            [right],
            [scale.npu()],
            [],
            None,
            row.npu(),
            None,
            groups.npu(),
            0,
            0,
            0,
            int(counts),
            None,
            y,
            by,
        )
    expert = routed(sizes, 5)
    value = (x[:5].double().unsqueeze(1) @ weight.double()[expert]).squeeze(1)
    a, b = (value * scale.double()[expert] * row.double()[:5, None]).chunk(2, -1)
    value = torch.nn.functional.silu(a) * b
    most = value.abs().amax(-1)
    torch.testing.assert_close(by.cpu().double()[:5], most / 127, rtol=1e-4, atol=0)
    assert bool(((y.cpu()[:5].double() - value / (most / 127)[:, None]).abs() <= 0.52).all())
    assert y.cpu()[5].tolist() == [99] * 32 and by.cpu()[5] == 99


def test_grouped_swiglu_refuses() -> None:
    x, weight, scale = integers(2, 32).npu(), integers(1, 32, 32).npu(), torch.ones(1, 32).npu()
    row, groups = torch.ones(2).npu(), torch.tensor([2]).npu()
    y, by = torch.empty(2, 16, dtype=torch.int8).npu(), torch.empty(2).npu()

    def said(mode: int, right: torch.Tensor) -> int:
        return first_phase(
            "aclnnGroupedMatmulSwigluQuantV2",
            x,
            [right],
            [scale],
            [],
            None,
            row,
            None,
            groups,
            mode,
            0,
            0,
            0,
            None,
            y,
            by,
        )[0]

    assert said(0, weight) == 0
    assert said(1, weight) == said(0, weight[:, :16]) == INVALID_ARGUMENT


def blocks(words: torch.Tensor) -> torch.Tensor:
    """As FRACTAL_NZ stores them, 32 bytes to a row of a block."""
    e, k, n = words.shape
    wide = 32 // words.element_size()
    return words.reshape(e, k // 16, 16, n // wide, wide).permute(0, 3, 1, 2, 4).contiguous()


@pytest.mark.parametrize("form", ["plain", "laid out", "blocks", "first"])
@pytest.mark.parametrize("by_group", [False, True])
def test_grouped_swiglu_with_weights_of_four_bits(form: str, by_group: bool) -> None:
    """The kernel takes 8 of each int8; what is added brings back what that leaves out."""
    sizes, inner, columns = [2, 3], 32, 128
    x, row = integers(5, inner), random(5, low=0.01, high=0.1, seed=1).float()
    weight, words = int4(2, inner, columns)
    count = 2 if by_group else 1
    scale = random(2, count, columns, low=0.001, high=0.01).float()
    bits = scale.view(torch.int32).long() & 0xFFFFFFFF
    spread = weight.double() * scale.double().repeat_interleave(inner // count, 1)
    assist = (8 * spread.sum(1)).float()
    expert = routed(sizes, 5)
    a, b = ((x.double().unsqueeze(1) @ spread[expert]).squeeze(1) * row.double()[:, None]).chunk(2, -1)
    value = torch.nn.functional.silu(a) * b
    most = value.abs().amax(-1)
    y, by = torch.empty(5, 64, dtype=torch.int8).npu(), torch.empty(5).npu()
    right = {"plain": words.npu(), "blocks": blocks(words).npu()}.get(form)
    if right is None:
        right = nz(words)
    factors = (bits if by_group else bits.squeeze(1)).npu()
    if form == "first":
        name = "aclnnGroupedMatmulSwigluQuantWeightNZ"
        arguments = [x.npu(), right, assist.npu(), None, factors, row.npu(), torch.tensor([2, 5]).npu(), y, by, None]
        added = 2
    else:
        name = "aclnnGroupedMatmulSwigluQuant" + ("WeightNzV2" if form == "laid out" else "V2")
        arguments = [
            x.npu(),
            [right],
            [factors],
            [assist.npu()],
            None,
            row.npu(),
            None,
            torch.tensor([2, 5]).npu(),
            int(by_group),
            0,
            0,
            0,
            None,
            y,
            by,
        ]
        added = 3
    run(name, *arguments)
    torch.testing.assert_close(by.cpu().double(), most / 127, rtol=1e-3, atol=0)
    assert bool(((y.cpu().double() - value / (most / 127)[:, None]).abs() <= 0.55).all())
    arguments[added] = None if form == "first" else []
    assert first_phase(name, *arguments)[0] == NULL_ARGUMENT


@pytest.mark.parametrize("smooth", [False, True])
def test_grouped_swiglu_of_four_bits(smooth: bool) -> None:
    (x, x_words), (weight, words) = int4(5, 64), int4(2, 64, 64, seed=1)
    scale, row = random(2, 64, low=0.001, high=0.1).float(), random(5, low=0.01, high=0.1, seed=1).float()
    bits = scale.view(torch.int32).long() & 0xFFFFFFFF
    factor = random(2, 32, low=0.5, high=2, seed=2).float()
    expert = routed([2, 3], 5)
    value = (x.double().unsqueeze(1) @ weight.double()[expert]).squeeze(1)
    a, b = (value * scale.double()[expert] * row.double()[:, None]).chunk(2, -1)
    value = torch.nn.functional.silu(a) * b * (factor.double()[expert] if smooth else 1)
    most = value.abs().amax(-1)
    y, by = torch.empty(5, 32, dtype=torch.int8).npu(), torch.empty(5).npu()
    arguments = [
        x_words.npu(),
        [words.npu()],
        [bits.npu()],
        [],
        None,
        row.npu(),
        factor.npu() if smooth else None,
        torch.tensor([2, 5]).npu(),
        0,
        0,
        0,
        0,
        None,
        y,
        by,
    ]
    run("aclnnGroupedMatmulSwigluQuantV2", *arguments)
    torch.testing.assert_close(by.cpu().double(), most / 127, rtol=1e-4, atol=0)
    assert bool(((y.cpu().double() - value / (most / 127)[:, None]).abs() <= 0.52).all())
    arguments[3] = [torch.ones(2, 64).npu()]
    assert first_phase("aclnnGroupedMatmulSwigluQuantV2", *arguments)[0] == INVALID_ARGUMENT


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finalize_routing(version: int, shared: bool, dtype: torch.dtype) -> None:
    sizes, tokens = [3, 0, 5], 4
    x, weight = integers(8, 32), integers(3, 32, 256, seed=1)
    scale, row = random(3, 256, low=0.001, high=0.01).to(dtype), random(8, low=0.01, high=0.1, seed=1).float()
    logit, residual = random(8, low=0.1, high=1, seed=2).float(), random(2, 256, seed=3).bfloat16()
    token = torch.tensor([0, 2, 1, 3, 0, 1, 2, 3])
    expert = routed(sizes, 8)
    value = (x.double().unsqueeze(1) @ weight.double()[expert]).squeeze(1) * scale.double()[expert]
    value = value * row.double()[:, None] * (logit.double()[:, None] if shared else 1)
    expected = torch.zeros(tokens, 256, dtype=torch.float64).index_add_(0, token, value)
    if shared:
        expected[1:3] += 0.5 * residual.double()
    out = torch.full((tokens, 256), 7.0).npu()
    more = [None, None, None] if version == 2 else []
    run(
        "aclnnGroupedMatmulFinalizeRoutingWeightNz" + ("V2" if version == 2 else ""),
        x.npu(),
        nz(weight),
        scale.npu(),
        None,
        *more,
        row.npu(),
        torch.tensor(sizes).npu(),
        residual.npu() if shared else None,
        logit.npu() if shared else None,
        token.npu(),
        0,
        0.5,
        1,
        False,
        False,
        1,
        *([None] if version == 2 else []),
        out,
    )
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("shifted", [False, True])
def test_finalize_routing_of_four_bits(version: int, shifted: bool) -> None:
    """The kernel takes 8 of each int8; bias brings back what that leaves out."""
    sizes, inner, columns = [2, 3], 128, 64
    x = integers(5, inner)
    weight, words = int4(2, inner, columns)
    scale = random(2, 2, columns, low=0.001, high=0.01).float()
    bits = scale.view(torch.int32).long() & 0xFFFFFFFF
    spread = weight.double() * scale.double().repeat_interleave(inner // 2, 1)
    bias = (8 * spread.sum(1)).float()
    offset = random(2, 2, columns, low=0.01, high=0.1, seed=4).float() if shifted else None
    if offset is not None:
        spread = spread + offset.double().repeat_interleave(inner // 2, 1)
    row, logit = random(5, low=0.01, high=0.1, seed=1).float(), random(5, low=0.1, high=1, seed=2).float()
    token, residual = torch.tensor([0, 1, 2, 1, 0]), random(1, columns, seed=3).bfloat16()
    expert = routed(sizes, 5)
    value = (x.double().unsqueeze(1) @ spread[expert]).squeeze(1) * row.double()[:, None] * logit.double()[:, None]
    expected = torch.zeros(3, columns, dtype=torch.float64).index_add_(0, token, value)
    expected[2:] += residual.double()
    out = torch.empty(3, columns).npu()
    arguments = [
        x.npu(),
        words.npu(),
        bits.npu(),
        bias.npu(),
        None if offset is None else offset.npu(),
        None,
        None,
        row.npu(),
        torch.tensor(sizes).npu(),
        residual.npu(),
        logit.npu(),
        token.npu(),
        0,
        1.0,
        2,
        False,
        False,
        1,
    ]
    arguments += [None] if version == 3 else []
    run(f"aclnnGroupedMatmulFinalizeRoutingV{version}", *arguments, out)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-4, atol=1e-3)
    arguments[3] = None
    assert first_phase(f"aclnnGroupedMatmulFinalizeRoutingV{version}", *arguments, out)[0] == NULL_ARGUMENT


@pytest.mark.parametrize("split", [1, 2])
def test_transposed_product_with_a_laid_out_weight(split: int) -> None:
    x, weight = random(4, 3, 32).half(), random(4, 32, 16, seed=1).half()
    expected = (x.double() @ weight.double()).transpose(0, 1)
    if split == 2:
        expected = expected.reshape(3, 2, 32).transpose(0, 1)
    out = torch.empty(expected.shape, dtype=torch.float16).npu()
    arguments = [x.npu(), nz(weight), None, None, [0, 1, 2], [0, 1, 2], [1, 0, 2], 0, split]
    run("aclnnTransposeBatchMatMulWeightNz", *arguments, out)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-3, atol=5e-3)
    arguments[6] = [0, 1, 2]
    assert first_phase("aclnnTransposeBatchMatMulWeightNz", *arguments, out)[0] == INVALID_ARGUMENT


@pytest.mark.parametrize("bias", [None, torch.float32, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quantized_convolution(bias: torch.dtype | None, dtype: torch.dtype) -> None:
    x, weight = integers(2, 3, 4, 5, 6), integers(4, 3, 2, 3, 2, seed=1)
    scale = random(4, low=0.001, high=0.01).float()
    added = None if bias is None else random(4, seed=1).to(bias)
    where = ([1, 2, 1], [1, 0, 1], [1, 1, 2])
    value = torch.nn.functional.conv3d(x.double(), weight.double(), None, *where) * scale.double().view(-1, 1, 1, 1)
    expected = value if added is None else value + added.double().view(-1, 1, 1, 1)
    out = torch.empty(expected.shape, dtype=dtype).npu()
    arguments = [
        x.npu(),
        weight.npu(),
        None if added is None else added.npu(),
        scale.npu(),
        None,
        *where,
        False,
        [0, 0, 0],
        1,
        0,
        None,
    ]
    run("aclnnQuantConvolution", *arguments, out)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-2, atol=1e-2)
    arguments[10] = 3
    assert first_phase("aclnnQuantConvolution", *arguments, out)[0] == INVALID_ARGUMENT
