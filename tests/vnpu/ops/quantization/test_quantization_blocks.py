"""Quantisation by group, block and row, with or without a product or SwiGLU before it, against float64."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run
from oracle import FLOATS, random

TILING_REFUSED = 561002
NARROW = (torch.float16, torch.bfloat16)


def near(actual: torch.Tensor, expected: torch.Tensor, least: int = -128, most: int = 127, off: int = 1) -> None:
    """A value next to a half may fall to either side."""
    difference = (actual.cpu().double() - expected.clamp(least, most)).abs()
    assert bool((difference <= 0.5 + 0.02 * off).all()), (actual, expected)


def close(actual: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-5) -> None:
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=rtol, atol=0)


def nibbles(words: torch.Tensor) -> torch.Tensor:
    """int4 of int32 (eight) or of int8 (two), the first in the lowest bits."""
    count = words.element_size() * 2
    values = (words.cpu().long().unsqueeze(-1) >> (4 * torch.arange(count))) & 15
    return torch.where(values > 7, values - 16, values).flatten(-2)


def swiglu(x: torch.Tensor, left: bool = True) -> torch.Tensor:
    a, b = x.double().chunk(2, -1)
    return torch.nn.functional.silu(a) * b if left else a * torch.nn.functional.silu(b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("counts", [None, 0, 1])
@pytest.mark.parametrize("wide", [False, True])
def test_swiglu_quant(dtype: torch.dtype, left: bool, counts: int | None, wide: bool) -> None:
    x = random(7, 16, low=-4, high=4).to(dtype)
    groups = {None: None, 0: torch.tensor([3, 3, 7]), 1: torch.tensor([3, 0, 4])}[counts]
    rows = torch.tensor([0] * 7 if groups is None else [0] * 3 + [2] * 4)
    count = 1 if groups is None else 3
    smooth = random(count, 8 if wide else 1, low=0.5, high=2, seed=1).float()
    offsets = random(count, 8 if wide else 1, low=-3, high=3, seed=2).float()
    given = [each if wide else each.flatten() for each in (smooth, offsets)]
    index = None if groups is None else groups.int().npu()
    value = swiglu(x, left) * smooth.double()[rows]

    def call(mode: int, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        return torch_npu.npu_swiglu_quant(
            x.npu(),
            smooth_scales=given[0].npu(),
            offsets=given[1].npu(),
            group_index=index,
            activate_left=left,
            quant_mode=mode,
            group_list_type=counts or 0,
            dst_type=kind,
        )

    near(call(0, torch.int8)[0], value + offsets.double()[rows])
    y, scale = call(1, torch.int8)
    factor = 127 / value.abs().amax(-1)
    close(scale, factor, 1e-4)
    near(y, value * factor.unsqueeze(-1))
    y, scale = call(1, torch.quint4x2)
    assert y.shape == (7, 4)
    near(nibbles(y), value * 7 / value.abs().amax(-1, keepdim=True), -8, 7)


def test_swiglu_quant_refuses() -> None:
    def said(mode: str, width: int, kind: int = 2) -> int:
        x, y = torch.ones(2, width).npu(), torch.empty(2, width // 2, dtype=torch.int8).npu()
        scale = torch.empty(2).npu()
        return first_phase("aclnnSwiGluQuantV2", x, None, None, None, True, mode, 0, kind, y, scale)[0]

    assert said("dynamic", 8) == 0
    assert said("static", 8) == NULL_ARGUMENT
    assert said("other", 8) == said("dynamic", 8, 3) == said("dynamic", 8200) == TILING_REFUSED


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("grouped", [False, True])
def test_dequant_swiglu_quant(integers: bool, dynamic: bool, mode: int, grouped: bool) -> None:
    rows, width, count = 6, 128, 2 if grouped else 1
    counts = torch.tensor([2, 3]) if grouped else torch.tensor([6])
    x = torch.randint(-50, 50, (rows, width), dtype=torch.int32) if integers else random(rows, width).bfloat16()
    weight, row = (random(count, width, low=0.01, high=0.1).float(), random(rows, low=0.5, high=2, seed=1).float())
    bias = random(count, width, seed=2).float()
    scale = random(count, width // 2, low=0.05, high=0.2, seed=3).float()
    offset = random(count, width // 2, low=-3, high=3, seed=4).float()
    group = torch.repeat_interleave(torch.arange(count), counts)
    value = x.double()[: len(group)]
    if integers:
        value = value * weight.double()[group] * row.double()[: len(group), None] + bias.double()[group]
    if mode == 0:
        value = swiglu(value)
    else:
        gate, linear = (value[:, ::2], value[:, 1::2]) if mode == 1 else value.chunk(2, -1)
        gate, linear = gate.clamp(max=1.5), linear.clamp(-1.5, 1.5)
        value = gate * torch.sigmoid(1.7 * gate) * (linear + 0.5)
    y, by = torch_npu.npu_dequant_swiglu_quant(
        x.npu(),
        weight_scale=weight.npu() if integers else None,
        activation_scale=row.npu() if integers else None,
        bias=bias.npu() if integers else None,
        quant_scale=scale.npu(),
        quant_offset=None if dynamic else offset.npu(),
        group_index=counts.npu() if grouped else None,
        activate_left=True,
        quant_mode=int(dynamic),
        swiglu_mode=mode,
        clamp_limit=1.5,
        glu_alpha=1.7,
        glu_bias=0.5,
    )
    if dynamic:
        value = value * scale.double()[group]
        most = value.abs().amax(-1, keepdim=True) / 127
        close(by[: len(group)], most.squeeze(-1), 1e-4)
        near(y[: len(group)], value / most)
    else:
        near(y[: len(group)], value / scale.double()[group] + offset.double()[group])


def test_the_first_version_of_dequant_swiglu() -> None:
    x, weight = torch.randint(-50, 50, (3, 64), dtype=torch.int32), random(64, low=0.01, high=0.1).float()
    bias = torch.randint(-9, 9, (64,), dtype=torch.int32)
    y, by = torch.empty(3, 32, dtype=torch.int8).npu(), torch.empty(3).npu()
    run("aclnnDequantSwigluQuant", x.npu(), weight.npu(), None, bias.npu(), None, None, None, False, "dynamic", y, by)
    value = swiglu((x + bias).double() * weight.double(), left=False)
    close(by, value.abs().amax(-1) / 127, 1e-4)
    near(y, value / (value.abs().amax(-1, keepdim=True) / 127))


def test_dequant_swiglu_refuses() -> None:
    def said(width: int, mode: int, left: bool, kind: int = 2) -> int:
        x, weight = torch.ones(2, width, dtype=torch.int32).npu(), torch.ones(width).npu()
        y, by = torch.empty(2, width // 2, dtype=torch.int8).npu(), torch.empty(2).npu()
        return first_phase(
            "aclnnDequantSwigluQuantV2",
            x,
            weight,
            None,
            None,
            None,
            None,
            None,
            left,
            "dynamic",
            kind,
            "rint",
            -1,
            mode,
            7.0,
            1.7,
            1.0,
            y,
            by,
        )[0]

    assert said(64, 0, False) == said(64, 3, True) == 0
    assert said(32, 0, False) == said(64, 1, False) == said(64, 4, True) == said(64, 0, True, 36) == TILING_REFUSED


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [torch.int8, torch.quint4x2])
def test_group_quant(dtype: torch.dtype, kind: torch.dtype) -> None:
    x, scale = random(6, 16, low=-4, high=4).to(dtype), random(3, 16, low=0.5, high=3, seed=1).to(dtype)
    offset = torch.tensor([1.5]).to(dtype)
    y = torch_npu.npu_group_quant(
        x.npu(), scale.npu(), torch.tensor([2, 2, 6], dtype=torch.int32).npu(), offset=offset.npu(), dst_dtype=kind
    )
    value = x.double() * scale.double()[[0, 0, 2, 2, 2, 2]] + 1.5
    if kind == torch.int8:
        near(y, value)
    else:
        near(nibbles(y), value, -8, 7)


def test_group_quant_refuses() -> None:
    x, scale, y = torch.ones(4, 8).npu(), torch.ones(2, 8).npu(), torch.empty(4, 8, dtype=torch.int8).npu()
    groups = torch.tensor([2, 4]).npu()
    assert first_phase("aclnnGroupQuant", x, scale, groups, None, 2, y)[0] == 0
    assert first_phase("aclnnGroupQuant", x, scale, groups[:1], None, 2, y)[0] == INVALID_ARGUMENT
    assert first_phase("aclnnGroupQuant", x, scale, groups, torch.ones(2).npu(), 2, y)[0] == INVALID_ARGUMENT


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("clip", [1.0, 0.75])
def test_kronecker_quant(dtype: torch.dtype, clip: float) -> None:
    x, left, right = (random(3, 5, 16).to(dtype), random(5, 5, seed=1).to(dtype), random(16, 16, seed=2).to(dtype))
    out, scale = torch_npu.npu_kronecker_quant(x.npu(), left.npu(), right.npu(), clip)
    between = (x.double() @ right.double()).to(dtype).double()
    value = left.double() @ between
    by = value.abs().amax((1, 2)) / (7 / clip)
    close(scale, by, 1e-2)
    near(nibbles(out), value / by.view(-1, 1, 1), -8, 7, off=3)
    second = torch.empty_like(out), torch.empty_like(scale)
    run("aclnnFlatQuantV2", x.npu(), left.npu(), right.npu(), clip, 0.0, *second)
    assert torch.equal(second[0], out) and torch.equal(second[1], scale)


def test_kronecker_quant_refuses() -> None:
    def said(width: int, clip: float) -> int:
        half = [torch.ones(*shape, dtype=torch.float16).npu() for shape in ((2, 3, 8), (3, 3), (width, width))]
        return first_phase(
            "aclnnFlatQuant", *half, clip, torch.empty(2, 3, 1, dtype=torch.int32).npu(), torch.empty(2).npu()
        )[0]

    assert said(8, 1.0) == 0
    assert said(16, 1.0) == said(8, 0.0) == INVALID_ARGUMENT


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("kind", [torch.int8, torch.int32])
def test_rotate_quant(dtype: torch.dtype, kind: torch.dtype) -> None:
    x, rotation = random(4, 128).to(dtype), random(32, 32, seed=1).to(dtype)
    value = (x.double().view(-1, 32) @ rotation.double()).view(4, 128).to(dtype).double()
    y = torch.empty(4, 128 if kind == torch.int8 else 16, dtype=kind).npu()
    scale = torch.empty(4).npu()
    run("aclnnRotateQuant", x.npu(), rotation.npu(), None, -1, "rint", 0, 0.0, False, y, scale)
    most = 127 if kind == torch.int8 else 7
    by = value.abs().amax(-1) / most
    close(scale, by, 1e-2)
    found = y if kind == torch.int8 else nibbles(y)
    near(found, value / by.unsqueeze(-1), -most - 1, most, off=40 if kind == torch.int8 else 5)


def test_rotate_quant_refuses() -> None:
    def said(width: int, side: int, algorithm: int = 0) -> int:
        x, rotation = (torch.ones(*shape, dtype=torch.float16).npu() for shape in ((2, width), (side, side)))
        y, scale = torch.empty(2, width, dtype=torch.int8).npu(), torch.empty(2).npu()
        return first_phase("aclnnRotateQuant", x, rotation, None, -1, "rint", algorithm, 0.0, False, y, scale)[0]

    assert said(128, 16) == 0
    assert said(128, 48) == said(128, 16, 1) == INVALID_ARGUMENT
    assert said(64, 16) == TILING_REFUSED


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(3, 300), (2, 3, 128), (4, 5)])
@pytest.mark.parametrize("least", [0.0, 200.0])
def test_dynamic_block_quant(dtype: torch.dtype, shape: tuple[int, ...], least: float) -> None:
    x = random(*shape).to(dtype)
    y, scale = torch_npu.npu_dynamic_block_quant(x.npu(), min_scale=least, dst_type=torch.int8)
    blocks = -(-shape[-1] // 128)
    padded = torch.nn.functional.pad(x.double(), (0, blocks * 128 - shape[-1])).unflatten(-1, (blocks, 128))
    by = padded.abs().amax(-1) / 127
    if least:
        by = by.clamp(max=1 / least)
    close(scale, by)
    near(y, (padded / by.unsqueeze(-1)).flatten(-2)[..., : shape[-1]])
    again = torch.empty_like(y), torch.empty_like(scale)
    run("aclnnDynamicBlockQuant", x.npu(), least, "rint", torch.int8, 1, 128, *again)
    assert torch.equal(again[0], y) and torch.equal(again[1], scale)


def test_dynamic_block_quant_refuses() -> None:
    def said(high: int, least: float) -> int:
        x, y = torch.ones(2, 128, dtype=torch.float16).npu(), torch.empty(2, 128, dtype=torch.int8).npu()
        scale = torch.empty(2, 1).npu()
        return first_phase("aclnnDynamicBlockQuant", x, least, "rint", torch.int8, high, 128, y, scale)[0]

    assert said(1, 0.0) == 0
    assert said(128, 0.0) == said(1, -1.0) == TILING_REFUSED
