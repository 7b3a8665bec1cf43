"""Quantisation to int8 and back, against float64; a value next to a half may fall to either side."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, compare, int4, random

NARROW = (torch.float16, torch.bfloat16)


def near(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype = torch.int8) -> None:
    reach = torch.iinfo(dtype)
    rounded = expected.round().clamp(reach.min, reach.max).to(dtype)
    off = (actual.cpu().long() - rounded.long()).abs()
    half = ((expected - expected.floor()) - 0.5).abs() < 2e-3
    assert actual.dtype == dtype
    assert bool(((off == 0) | ((off == 1) & half)).all()), (actual, expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("quantized", "plain"), [(torch.qint8, torch.int8), (torch.quint8, torch.uint8), (torch.qint32, torch.int32)]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_quantize(dtype: torch.dtype, quantized: torch.dtype, plain: torch.dtype, axis: int) -> None:
    x = random(4, 6, low=-9, high=9).to(dtype)
    scale = random((4, 6)[axis], low=0.05, high=0.2, seed=1).float()
    zero = torch.arange((4, 6)[axis], dtype=torch.int32)
    out = torch_npu.npu_quantize(x.npu(), scale.npu(), zero.npu(), quantized, axis)
    shape = (-1, 1) if axis == 0 else (1, -1)
    near(out, x.double() / scale.double().view(shape) + zero.view(shape), plain)


def test_quantize_per_tensor_saturates() -> None:
    x = torch.tensor([-1000.0, -0.05, 0.05, 1000.0])
    y = torch_npu.npu_quantize(x.npu(), torch.tensor([0.1]).npu(), None, torch.qint8, 0)
    assert y.cpu().tolist() == [-128, 0, 0, 127]  # halves go to even


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("squared", [False, True])
def test_ascend_quant(dtype: torch.dtype, squared: bool) -> None:
    x, scale = random(4, 6).to(dtype), random(6, low=4, high=20, seed=1).to(dtype)
    offset = random(6, low=-9, high=9, seed=2).to(dtype)
    by = scale.double() ** (2 if squared else 1)
    for name, extra in (("aclnnAscendQuant", ()), ("aclnnAscendQuantV3", (-1,))):
        y = torch.empty(4, 6, dtype=torch.int8, device="npu")
        run(name, x.npu(), scale.npu(), offset.npu(), squared, "round", 2, *extra, y)
        near(y, x.double() * by + offset.double())


@pytest.mark.parametrize("mode", ["round", "floor", "ceil", "trunc"])
def test_ascend_quant_rounds_as_it_is_asked_to(mode: str) -> None:
    x = torch.tensor([-2.5, -1.6875, -0.1875, 0.1875, 0.5, 0.6875, 1.75, 200.25])
    exact = getattr(torch, mode)(x.double() * 2 + 0.125).clamp(-128, 127)  # with two halves
    for name, extra in (("aclnnAscendQuant", ()), ("aclnnAscendQuantV3", (-1,))):
        y = torch.empty(8, dtype=torch.int8, device="npu")
        scale, offset = torch.full((8,), 2.0).npu(), torch.full((8,), 0.125).npu()
        run(name, x.npu(), scale, offset, False, mode, 2, *extra, y)
        assert y.tolist() == exact.tolist()


def test_ascend_quant_to_four_bits() -> None:
    x, scale = random(4, 16).half(), random(16, low=1, high=3, seed=1).half()
    y = torch.empty(4, 2, dtype=torch.int32, device="npu")
    arguments = [x.npu(), scale.npu(), None, False, "round", 3, -1, y]
    run("aclnnAscendQuantV3", *arguments)
    bits = y.cpu().unsqueeze(-1) >> torch.arange(0, 32, 4) & 15
    values = torch.where(bits > 7, bits - 16, bits).reshape(4, 16)
    exact = (x.double() * scale.double()).clamp(-8, 7)
    assert bool(((values.double() - exact).abs() <= 0.501).all()) and len(values.unique()) > 8
    arguments[-1] = torch.empty(4, 16, dtype=torch.int32, device="npu")
    assert first_phase("aclnnAscendQuantV3", *arguments)[0] == INVALID_ARGUMENT
    arguments[0], arguments[1], arguments[-1] = x[:, :9].npu(), scale[:9].npu(), y[:, :1].contiguous()
    assert first_phase("aclnnAscendQuantV3", *arguments)[0] == INVALID_ARGUMENT


def test_ascend_quant_along_rows() -> None:
    x, scale = random(4, 6).half(), random(4, low=4, high=20, seed=1).half()
    y = torch_npu.npu_quantize(x.npu(), scale.unsqueeze(1).npu(), None, torch.qint8, -2, div_mode=False)
    near(y, x.double() * scale.double().unsqueeze(1))


@pytest.mark.parametrize("squared", [False, True])
def test_anti_quant(squared: bool) -> None:
    x = torch.randint(-128, 128, (4, 6), dtype=torch.int8)
    scale, offset = random(6, low=0.01, high=0.1).float(), random(6, low=-9, high=9).float()
    y = torch.empty(4, 6, dtype=torch.float16, device="npu")
    run("aclnnAscendAntiQuant", x.npu(), scale.npu(), offset.npu(), torch.float16, squared, y)
    by = scale.double() ** (2 if squared else 1)
    compare(y, (x.double() + offset.double()) * by, torch.float16)


def test_anti_quant_of_packed_int4() -> None:
    values, packed = int4(3, 16)
    scale, offset = random(16, low=0.01, high=0.1).float(), random(16, low=-9, high=9).float()
    y = torch.empty(3, 16, dtype=torch.bfloat16, device="npu")
    run("aclnnAscendAntiQuant", packed.npu(), scale.npu(), offset.npu(), torch.bfloat16, False, y)
    compare(y, (values.double() + offset.double()) * scale.double(), torch.bfloat16)
    status, message = first_phase(
        "aclnnAscendAntiQuant", packed.npu(), scale.npu(), None, torch.bfloat16, False, y[:, :8]
    )
    assert status == INVALID_ARGUMENT and "parameter y has shape [3, 8], expected [3, 16]" in message


@pytest.mark.parametrize("dtype", NARROW)
def test_dynamic_quant_of_torch_npu(dtype: torch.dtype) -> None:
    x = random(2, 3, 16).to(dtype)
    y, scale = torch_npu.npu_dynamic_quant(x.npu())
    expected = x.double().abs().amax(-1) / 127
    compare(scale, expected, torch.float32, ulps=4)
    near(y, x.double() / expected.unsqueeze(-1))


@pytest.mark.parametrize(
    "name", ["aclnnDynamicQuant", "aclnnDynamicQuantV2", "aclnnDynamicQuantV3", "aclnnDynamicQuantV4"]
)
def test_dynamic_quant_with_smooth_scales(name: str) -> None:
    x, smooth = random(4, 16).half(), random(16, low=0.5, seed=1).half()
    y, scale = torch.empty(4, 16, dtype=torch.int8, device="npu"), torch.empty(4, device="npu")
    middle: dict[str, tuple[Any, ...]] = {
        "aclnnDynamicQuant": (),
        "aclnnDynamicQuantV2": (None, torch.int8),
        "aclnnDynamicQuantV3": (None, torch.int8, True, "pertoken"),
        "aclnnDynamicQuantV4": (None, torch.int8, True, "pertoken", 0.0),
    }
    last = () if name == "aclnnDynamicQuant" else (None,)
    run(name, x.npu(), smooth.npu(), *middle[name], y, scale, *last)
    value = x.double() * smooth.double()
    expected = value.abs().amax(-1) / 127
    compare(scale, expected, torch.float32, ulps=4)
    near(y, value / expected.unsqueeze(-1))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("mode", ["pertoken", "perchannel", "pertensor"])
def test_dynamic_quant_to_packed_int4(symmetric: bool, mode: str) -> None:
    x = random(2, 3, 16, low=-1, high=3).half()
    wide, dims = x.double(), {"pertoken": (-1,), "perchannel": (-2,), "pertensor": (0, 1, 2)}[mode]
    high, low = wide.amax(dims, keepdim=True), wide.amin(dims, keepdim=True)
    by = torch.maximum(high, -low) / 7 if symmetric else (high - low) / 15
    expected = wide / by if symmetric else wide / by + (7 - high / by)
    y = torch.empty(2, 3, 2, dtype=torch.int32, device="npu")
    scale, shift = (torch.empty(by.numel(), device="npu") for _ in range(2))
    run(
        "aclnnDynamicQuantV3", x.npu(), None, None, torch.int32, symmetric, mode, y, scale, None if symmetric else shift
    )
    compare(scale, by.flatten(), torch.float32, ulps=8)
    words = y.cpu().unsqueeze(-1) >> torch.arange(0, 32, 4)
    values = ((words & 15) ^ 8) - 8
    near(values.reshape(2, 3, 16).to(torch.int8), expected.clamp(-8, 7))
    status, message = first_phase(
        "aclnnDynamicQuantV3",
        x.npu(),
        None,
        None,
        torch.int32,
        symmetric,
        mode,
        y[..., :1],
        scale,
        None if symmetric else shift,
    )
    assert status == INVALID_ARGUMENT and "parameter yOut" in message, message


def test_dynamic_quant_by_group() -> None:
    x, smooth = random(6, 8).half(), random(2, 8, low=0.5, seed=1).half()
    ends = torch.tensor([2, 5], dtype=torch.int32)  # the last row is in no group
    y, scale = torch.empty(6, 8, dtype=torch.int8, device="npu"), torch.empty(6, device="npu")
    run("aclnnDynamicQuantV2", x.npu(), smooth.npu(), ends.npu(), torch.int8, y, scale, None)
    factors = torch.cat([smooth.double()[[0, 0, 1, 1, 1]], torch.ones(1, 8)])
    value = x.double() * factors
    near(y, value / (value.abs().amax(-1, keepdim=True) / 127))


@pytest.mark.parametrize(("mode", "dims"), [("pertoken", -1), ("perchannel", -2), ("pertensor", (0, 1))])
def test_asymmetric_dynamic_quant(mode: str, dims: Any) -> None:
    x = random(5, 16, low=-1, high=3).half()
    wide = x.double()
    high, low = wide.amax(dims, keepdim=True), wide.amin(dims, keepdim=True)
    by = (high - low) / 255
    offset = 127 - high / by
    y = torch.empty(5, 16, dtype=torch.int8, device="npu")
    scale, shift = (torch.empty(by.numel(), device="npu") for _ in range(2))
    run("aclnnDynamicQuantV3", x.npu(), None, None, torch.int8, False, mode, y, scale, shift)
    compare(scale, by.flatten(), torch.float32, ulps=8)
    compare(shift, offset.flatten(), torch.float32, ulps=16)
    near(y, wide / by + offset)


def test_fake_quantize() -> None:
    x = random(4, 6, low=-9, high=9)
    scale, zero = torch.tensor([0.1]).float(), torch.tensor([3], dtype=torch.int32)
    expected, mask = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
        x.float(), scale, zero, torch.ones(1, dtype=torch.long), -50, 50
    )
    out, inside = torch.empty(4, 6, device="npu"), torch.empty(4, 6, dtype=torch.bool, device="npu")
    run("aclnnFakeQuantPerTensorAffineCachemask", x.float().npu(), scale.npu(), zero.npu(), 1.0, -50, 50, out, inside)
    compare(out, expected.double(), torch.float32, ulps=4)
    assert torch.equal(inside.cpu(), mask) and not bool(mask.all())
    run("aclnnFakeQuantPerTensorAffineCachemask", x.float().npu(), scale.npu(), zero.npu(), 0.0, -50, 50, out, inside)
    assert torch.equal(out.cpu(), x.float()) and bool(inside.all())

    scales, zeros = random(6, low=0.05, high=0.2).float(), torch.arange(6, dtype=torch.int32)
    expected, mask = torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x.float(), scales, zeros, 1, -50, 50)
    run("aclnnFakeQuantPerChannelAffineCachemask", x.float().npu(), scales.npu(), zeros.npu(), 1, -50, 50, out, inside)
    compare(out, expected.double(), torch.float32, ulps=4)
    assert torch.equal(inside.cpu(), mask)


@pytest.mark.parametrize("bias", [None, torch.int32, torch.float16])
def test_dequant_bias(bias: torch.dtype | None) -> None:
    x = torch.randint(-1000, 1000, (3, 5), dtype=torch.int32)
    weight, row = random(5, low=0.01, high=0.1).float(), random(3, low=0.5, seed=1).float()
    added = None if bias is None else torch.arange(-2, 3).to(bias)
    out = torch_npu.npu_dequant_bias(
        x.npu(), weight.npu(), row.npu(), None if added is None else added.npu(), output_dtype=torch.float16
    )
    whole = x + added if bias == torch.int32 else x
    expected = whole.double() * weight.double() * row.double().unsqueeze(1)
    compare(out, expected + added.double() if bias == torch.float16 else expected, torch.float16)


def test_refusals() -> None:
    x, three = torch.ones(2, 4, device="npu").half(), torch.ones(3, device="npu").half()
    y, scale = torch.empty(2, 4, dtype=torch.int8, device="npu"), torch.empty(2, device="npu")
    cases: list[tuple[str, tuple[Any, ...], str]] = [
        ("aclnnAscendQuant", (x, three, None, False, "round", 2, y), "parameter scale has 3 values"),
        ("aclnnAscendQuant", (x, x[0], None, False, "rint", 2, y), 'roundMode is "rint"'),
        ("aclnnAscendQuant", (x, x[0], None, False, "round", 29, y), "parameter dstType is 29"),
        ("aclnnDynamicQuant", (x, three, y, scale), "smoothScalesOptional"),
        ("aclnnDynamicQuant", (x, None, y, three.float()), "parameter scaleOut is float32[3], expected 2 values"),
    ]
    for name, arguments, words in cases:
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
