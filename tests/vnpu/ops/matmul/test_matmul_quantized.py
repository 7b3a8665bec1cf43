"""Products of int8 matrices, and of floating-point ones with int8 weights."""

import struct
from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run
from oracle import compare, int4, random


def bytes_of(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-128, 128, sizes, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


def test_packed_scale() -> None:
    scale, offset = torch.tensor([0.3, 1.1, 3e-5]), torch.tensor([3.4, -300.0, 2.5])
    packed = torch_npu.npu_trans_quant_param(scale.npu()).cpu().tolist()
    bits = [struct.unpack("<I", struct.pack("<f", s))[0] & 0xFFFFE000 for s in scale.tolist()]
    assert packed == [b | 1 << 46 for b in bits]
    packed = torch_npu.npu_trans_quant_param(scale.npu(), offset.npu()).cpu().tolist()
    assert packed == [b | 1 << 46 | (o & 0x1FF) << 37 for b, o in zip(bits, (3, -256, 2), strict=True)]
    older = torch.empty(3, dtype=torch.int64, device="npu")
    run("aclnnTransQuantParamV2", scale.npu(), offset.npu(), older)
    assert older.cpu().tolist() == packed
    nearest = torch_npu.npu_trans_quant_param(scale.npu(), round_mode=1).cpu().tolist()
    kept = [struct.unpack("<f", struct.pack("<I", value & 0xFFFFFFFF))[0] for value in nearest]
    assert kept == pytest.approx(scale.tolist(), rel=2**-11) and nearest != [b | 1 << 46 for b in bits]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("bias", [None, torch.int32])
def test_quant_matmul(dtype: torch.dtype, by_row: bool, bias: torch.dtype | None) -> None:
    x1, x2 = bytes_of(4, 40), bytes_of(40, 6, seed=1)
    scale = random(6, low=0.001, high=0.01).float()
    row = random(4, low=0.5, high=2, seed=2).float() if by_row else None
    added = torch.arange(-3, 3, dtype=torch.int32) * 100 if bias else None
    expected = x1.double() @ x2.double()
    if added is not None:
        expected = expected + added
    expected = expected * scale.double()
    if row is not None:
        expected = expected * row.double().unsqueeze(1)
    packed = not by_row and dtype == torch.float16
    if packed:  # what this combination asks for
        scale = ((scale.view(torch.int32).long() & 0xFFFFE000).int()).view(torch.float32)
        expected = x1.double() @ x2.double()
        expected = (expected if added is None else expected + added) * scale.double()
    device = torch_npu.npu_trans_quant_param(scale.npu()) if packed else scale.npu()
    out = torch_npu.npu_quant_matmul(
        x1.npu(),
        x2.npu(),
        device,
        pertoken_scale=None if row is None else row.npu(),
        bias=None if added is None else added.npu(),
        output_dtype=dtype,
    )
    compare(out, expected, dtype)


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_transposed_operands_and_int8_results(transposed: tuple[bool, bool]) -> None:
    x1, x2 = bytes_of(4, 8), bytes_of(8, 6, seed=1)
    scale, offset = torch.full((6,), 0.003), torch.full((6,), 2.0)
    expected = (x1.double() @ x2.double()) * scale.double() + 2
    first = (x1.t() if transposed[0] else x1).contiguous().npu()
    second = (x2.t() if transposed[1] else x2).contiguous().npu()
    out = torch.empty(4, 6, dtype=torch.int8, device="npu")
    run(
        "aclnnQuantMatmulV5",
        first,
        second,
        None,
        scale.npu(),
        None,
        None,
        offset.npu(),
        None,
        None,
        *transposed,
        0,
        out,
    )
    assert bool(((out.cpu().double() - expected.clamp(-128, 127)).abs() <= 0.501).all())


@pytest.mark.parametrize("rows_scaled", [False, True])
def test_the_version_before_names_its_scales_otherwise(rows_scaled: bool) -> None:
    x1, x2 = bytes_of(4, 8), bytes_of(8, 6, seed=1)
    scale, rows = random(6, low=0.001, high=0.01).float(), random(4, low=0.5, high=2.0).float()
    expected = (x1.double() @ x2.double()) * scale.double()
    if rows_scaled:
        expected = expected * rows.double()[:, None]
    out = torch.empty(4, 6, dtype=torch.bfloat16, device="npu")
    given = rows.npu() if rows_scaled else None
    run("aclnnQuantMatmulV4", x1.npu(), x2.npu(), scale.npu(), None, given, None, False, False, out)
    compare(out, expected, torch.bfloat16)


@pytest.mark.parametrize("transposed", [False, True])
def test_packed_int4(transposed: bool) -> None:
    (a, x1), (b, x2) = int4(3, 16), int4(*((24, 16) if transposed else (16, 24)), seed=1)
    expected = a.double() @ (b.mT if transposed else b).double()
    scale = random(24, low=0.01, high=0.1).float()
    out = torch.empty(3, 24, dtype=torch.bfloat16, device="npu")
    rest = (None, scale.npu(), None, None, None, None, None)
    run("aclnnQuantMatmulV5", x1.npu(), x2.npu(), *rest, False, transposed, 0, out)
    compare(out, expected * scale.double(), torch.bfloat16)
    if transposed:  # the same by a view
        run("aclnnQuantMatmulV5", x1.npu(), x2.npu().mT, *rest, False, False, 0, out)
        compare(out, expected * scale.double(), torch.bfloat16)


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_of_int8_with_weights_of_four_bits(grouped: bool) -> None:
    """The kernel takes 8 of each int8; yOffset brings back what that leaves out."""
    x, (weight, words) = bytes_of(3, 512), int4(512, 16)
    scale = random(2 if grouped else 1, 16, low=0.001, high=0.01).float()
    bits = scale.view(torch.int32).long() & 0xFFFFFFFF
    spread = weight.double() * scale.double().repeat_interleave(512 // len(scale), 0)
    row, offset = random(3, 1, low=0.01, high=0.1, seed=2).float(), (8 * spread.sum(0)).float()
    for dtype in (torch.float16, torch.bfloat16):
        out = torch.empty(3, 16, dtype=dtype, device="npu")
        given = [
            x.npu(),
            words.npu(),
            row.npu(),
            (bits if grouped else bits[0]).npu(),
            None,
            None,
            None,
            offset.npu(),
            None,
            False,
            False,
            256 if grouped else 0,
            out,
        ]
        run("aclnnQuantMatmulV5", *given)
        exact = (x.double() @ spread) * row.double()
        torch.testing.assert_close(
            out.cpu().double(), exact, rtol=2e-2, atol=float(exact.abs().max()) * torch.finfo(dtype).eps
        )
    for place, wrong, code in (
        (7, None, NULL_ARGUMENT),
        (9, True, INVALID_ARGUMENT),
        (11, 128, INVALID_ARGUMENT),
        (8, torch.zeros(16).npu(), INVALID_ARGUMENT),
        (0, x[:, :128].npu(), INVALID_ARGUMENT),
    ):
        assert first_phase("aclnnQuantMatmulV5", *given[:place], wrong, *given[place + 1 :])[0] == code


@pytest.mark.parametrize(
    ("x1", "x2", "transpose", "words"),
    [
        (torch.int32, torch.int8, False, "allowed are two of int8 or two of int32"),
        (torch.int32, torch.int32, True, "transposeX1 is true"),
    ],
)
def test_packed_int4_is_refused(x1: torch.dtype, x2: torch.dtype, transpose: bool, words: str) -> None:
    left, right = torch.zeros(16, 2, dtype=x1).npu(), torch.zeros(16, 3, dtype=x2).npu()
    out = torch.empty(16, 24, dtype=torch.bfloat16, device="npu")
    rest = (None, torch.ones(24).npu(), None, None, None, None, None, transpose, False, 0, out)
    status, message = first_phase("aclnnQuantMatmulV5", left, right, *rest)
    assert status == INVALID_ARGUMENT and words in message


@pytest.mark.parametrize("name", ["aclnnWeightQuantBatchMatmulV2", "aclnnWeightQuantBatchMatmulV3"])
@pytest.mark.parametrize("group", [0, 32])
def test_int8_weights(name: str, group: int) -> None:
    x, weight = random(3, 70).half(), bytes_of(70, 6)
    groups = 3 if group else 1
    scale, offset = (random(groups, 6, low=0.01, high=0.1).half(), random(groups, 6, low=-9, high=9, seed=1).half())
    bias = random(6, seed=2).half()
    spread = (lambda t: t.repeat_interleave(group, 0)[:70]) if group else (lambda t: t)
    real = ((weight.half() + spread(offset)) * spread(scale)).double()  # the chip's vector cores compute in half
    out = torch.empty(3, 6, dtype=torch.float16, device="npu")
    extra = (1,) if name.endswith("V3") else ()
    device = [t.npu() for t in (x, weight, scale, offset)]
    run(name, *device, None, None, bias.npu(), group, *extra, out)
    compare(out, x.double() @ real + bias.double(), torch.float16)
    integers = torch.empty(3, 6, dtype=torch.int8, device="npu")
    run(
        name,
        *device,
        torch.tensor([2.0, 0.0]).view(torch.uint64).npu(),  # a float32's bits in the lower half
        torch.tensor([1.0]).npu(),
        bias.npu(),
        group,
        *extra,
        integers,
    )
    expected = ((x.double() @ real + bias.double()) * 2 + 1).clamp(-128, 127)
    assert bool(((integers.cpu().double() - expected).abs() <= 0.502).all())


@pytest.mark.parametrize("name", ["aclnnWeightQuantBatchMatmulV2", "aclnnWeightQuantBatchMatmulV3"])
@pytest.mark.parametrize(("group", "taken"), [(64, True), (48, False), (16, False), (-32, False), (96, False)])
def test_groups_are_multiples_of_32_and_smaller_than_the_product(name: str, group: int, taken: bool) -> None:
    extra = (1,) if name.endswith("V3") else ()
    shapes = ((3, 96), (96, 6), (2, 6))
    x, weight, scale = (torch.ones(*shape, dtype=torch.float16, device="npu") for shape in shapes)
    out = torch.empty(3, 6, dtype=torch.float16, device="npu")
    given = (x, weight.to(torch.int8), scale, *[None] * 4, group, *extra, out)
    status, message = first_phase(name, *given)
    assert (status == 0) == taken, message
    assert taken or f"antiquantGroupSize is {group}," in message


def test_int8_weights_of_torch_npu() -> None:
    x, weight, scale = random(3, 10).half(), bytes_of(10, 6), random(6, low=0.01, high=0.1).half()
    out = torch_npu.npu_weight_quant_batchmatmul(x.npu(), weight.npu(), scale.npu())
    compare(out, x.double() @ (weight.half() * scale).double(), torch.float16)


def test_int8_weights_are_rounded_for_the_matrix_units() -> None:
    """To what: 100 of 1/3 less 33 1/3 leave what a rounding of the weight is off by."""
    third = torch.tensor([1 / 3])
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.tensor([[100.0, -1.0]], dtype=dtype)
        weight, scale = torch.tensor([[1], [100]], dtype=torch.int8), third.to(dtype)
        out = torch_npu.npu_weight_quant_batchmatmul(x.npu(), weight.npu(), scale.npu())
        rounded = (weight.double() * scale.double()).to(dtype).double()
        expected = (x.double() @ rounded).to(dtype)
        assert expected.item() != (x.double() @ (weight.double() * scale.double())).to(dtype).item()
        assert torch.equal(out.cpu(), expected)
    # In half the sum of weight and offset is rounded, too, to 100; in bfloat16's float it is not.
    for dtype, offset, value in ((torch.float16, 1 / 32, 126.5625), (torch.bfloat16, 0.25, 127.0)):
        one, weight = torch.ones(1, 1, dtype=dtype), torch.tensor([[100]], dtype=torch.int8)
        scale, offsets = torch.tensor([1.265625], dtype=dtype), torch.tensor([offset], dtype=dtype)
        out = torch_npu.npu_weight_quant_batchmatmul(one.npu(), weight.npu(), scale.npu(), offsets.npu())
        assert out.item() == value


def test_refusals() -> None:
    x1, x2, out = (torch.ones(*s, device="npu") for s in ((4, 8), (8, 6), (4, 6)))
    a, b, half = x1.to(torch.int8), x2.to(torch.int8), out.half()
    none = (None,) * 5
    cases: list[tuple[str, tuple[Any, ...], str]] = [
        ("aclnnQuantMatmulV5", (x1, b, None, None, *none, False, False, 0, half), "parameter x1 has dtype float32"),
        ("aclnnQuantMatmulV5", (a, b, None, None, *none, True, False, 0, half), "expected 4 as the dimension"),
        ("aclnnQuantMatmulV5", (a, b, None, x1[0], *none, False, False, 0, half), "parameter x2Scale is float32[8]"),
        (
            "aclnnWeightQuantBatchMatmulV2",
            (x1.half(), b, half[0], None, None, None, None, 9, half),
            "antiquantGroupSize is 9",
        ),
    ]
    for name, arguments, words in cases:
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
