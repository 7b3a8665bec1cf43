"""What a 910B refuses beside dtypes and ranks: in the first phase (161002), in the plan of an operator that is one kernel
(561002) and of one that is made of several (561103). Next to each refusal stands the neighbour that passes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from forked import python
from oracle import DEVICE

F = torch.nn.functional
TILING, PART = 561002, 561103  # ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_INNER_NULLPTR
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32


def x(*shape: int, dtype: torch.dtype = FLOAT, device: str = DEVICE) -> torch.Tensor:
    return (torch.arange(float(torch.Size(shape).numel())).reshape(shape) % 5 - 1).to(device, dtype)


def h(*shape: int) -> torch.Tensor:
    return x(*shape, dtype=HALF)


def b(*shape: int) -> torch.Tensor:
    return x(*shape, dtype=BFLOAT)


def backward(call: Callable[[torch.Tensor], torch.Tensor], operand: torch.Tensor) -> torch.Tensor:
    leaf = operand.requires_grad_()
    (gradient,) = torch.autograd.grad(call(leaf).sum(), leaf)
    return gradient


def attention(q: torch.Tensor, v: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
    v = q if v is None else v
    return torch_npu.npu_fusion_attention(q, q, v, q.shape[1], "BNSD", **options)[0]


def whole(queries: int, keys: int) -> torch.Tensor:
    """A mask that leaves out nothing."""
    return x(queries, keys) > 9


def triangle() -> torch.Tensor:
    """The compressed mask of the causal modes."""
    return torch.ones(2048, 2048, dtype=torch.bool).triu(1).to(DEVICE)


def masked(**options: Any) -> torch.Tensor:
    """Four queries of six keys."""
    queries, keys = h(1, 2, 4, 64), h(1, 2, 6, 64)
    return torch_npu.npu_fusion_attention(queries, keys, keys, 2, "BNSD", **{"atten_mask": whole(4, 6), **options})[0]


def packed(queries: list[int], keys: list[int], **options: Any) -> torch.Tensor:
    q, k = h(sum(queries), 2, 64), h(sum(keys), 2, 64)
    ends = {"actual_seq_qlen": list(accumulate(queries)), "actual_seq_kvlen": list(accumulate(keys))}
    options = {"atten_mask": triangle(), **ends, **options}
    return torch_npu.npu_fusion_attention(q, k, k, 2, "TND", **options)[0]


def rotary(width: int, mode: str = "half") -> torch.Tensor:
    return torch_npu.npu_rotary_mul(x(1, 2, 2, width), x(1, 1, 2, width), x(1, 1, 2, width), mode)


# What is refused, the code, words of the message, and what passes.
Call = Callable[[], torch.Tensor]
POOLING: dict[str, tuple[Call, int, str, Call]] = {
    "max_pool2d, a gap": (
        lambda: F.max_pool2d(x(1, 1, 8, 8), 2, dilation=2),
        INVALID_ARGUMENT,
        "dilation only support 1",
        lambda: F.max_pool2d(x(1, 1, 8, 8), 2, dilation=1),
    ),
    "max_pool2d, a gap in one dimension": (
        lambda: F.max_pool2d(x(1, 1, 8, 8), 2, dilation=(1, 2)),
        INVALID_ARGUMENT,
        "dilation has the value 2",
        lambda: F.max_pool2d(x(1, 1, 8, 8), 2, dilation=(1, 1)),
    ),
    "max_pool3d, a gap": (
        lambda: F.max_pool3d(x(1, 1, 8, 8, 8), 2, dilation=(1, 1, 3)),
        INVALID_ARGUMENT,
        "dilation only support 1",
        lambda: F.max_pool3d(x(1, 1, 8, 8, 8), 2),
    ),
    "adaptive_avg_pool2d to nothing": (
        lambda: F.adaptive_avg_pool2d(x(1, 1, 4, 4), (0, 4)),
        INVALID_ARGUMENT,
        "outputSize has the value 0",
        lambda: F.adaptive_avg_pool2d(x(1, 1, 4, 4), (1, 4)),
    ),
    "adaptive_avg_pool3d of nothing": (
        lambda: F.adaptive_avg_pool3d(x(0, 2, 4, 4, 4), 2),
        INVALID_ARGUMENT,
        "allowed are tensors with elements",
        lambda: F.adaptive_avg_pool3d(x(1, 2, 4, 4, 4), 2),
    ),
}
CONVOLUTION: dict[str, tuple[Call, int, str, Call]] = {
    "conv2d, padding": (
        lambda: F.conv2d(x(1, 1, 8, 8), x(1, 1, 3, 3), padding=256),
        PART,
        "padding has the value 256, allowed is at most 255",
        lambda: F.conv2d(x(1, 1, 8, 8), x(1, 1, 3, 3), padding=255),
    ),
    "conv1d, padding": (
        lambda: F.conv1d(x(1, 1, 8), x(1, 1, 3), padding=256),
        PART,
        "padding has the value 256",
        lambda: F.conv1d(x(1, 1, 8), x(1, 1, 3), padding=255),
    ),
    "conv3d, stride": (
        lambda: F.conv3d(x(1, 1, 4, 100, 8), x(1, 1, 1, 1, 1), stride=(1, 64, 1)),
        PART,
        "stride has the value 64, allowed is at most 63",
        lambda: F.conv3d(x(1, 1, 70, 100, 8), x(1, 1, 1, 1, 1), stride=(64, 63, 1)),
    ),
    "conv3d, stride, but for one place": (
        lambda: F.conv3d(x(1, 1, 2, 64, 65), x(1, 1, 2, 64, 64), stride=(2, 64, 64)),
        PART,
        "stride has the value 64",
        lambda: F.conv3d(x(1, 1, 2, 64, 64), x(1, 1, 2, 64, 64), stride=(2, 64, 64)),
    ),
    "conv3d, padding": (
        lambda: F.conv3d(x(1, 1, 1, 2, 2), x(1, 1, 1, 1, 1), padding=(0, 0, 256)),
        PART,
        "padding has the value 256",
        lambda: F.conv3d(x(1, 1, 1, 2, 2), x(1, 1, 1, 1, 1), padding=(256, 0, 255)),
    ),
    "conv3d, dilation": (
        lambda: F.conv3d(x(1, 1, 1, 300, 1), x(1, 1, 1, 2, 1), dilation=(1, 256, 1)),
        PART,
        "dilation has the value 256",
        lambda: F.conv3d(x(1, 1, 1, 300, 1), x(1, 1, 1, 2, 1), dilation=(1, 255, 1)),
    ),
    "conv3d, a long window": (
        lambda: F.conv3d(x(1, 1, 1, 600, 1), x(1, 1, 1, 512, 1)),
        PART,
        "weight has the value 512, allowed is at most 511",
        lambda: F.conv3d(x(1, 1, 1, 600, 1), x(1, 1, 1, 511, 1)),
    ),
    "conv3d, a large window": (
        lambda: F.conv3d(h(1, 1, 1, 65, 65), h(1, 1, 1, 64, 64)),
        PART,
        "its window is too large",
        lambda: F.conv3d(x(1, 1, 1, 65, 65), x(1, 1, 1, 64, 64)),
    ),
    "conv_transpose2d, a window": (
        lambda: F.conv_transpose2d(x(1, 1, 2, 2), x(1, 1, 256, 256)),
        PART,
        "weight has the value 256, allowed is at most 255",
        lambda: F.conv_transpose2d(x(1, 1, 2, 2), x(1, 1, 255, 255)),
    ),
    "conv_transpose2d, what is left of the padding": (
        lambda: F.conv_transpose2d(x(1, 1, 2, 2), x(1, 1, 130, 1), dilation=2),
        INVALID_ARGUMENT,
        r"\(130 - 1\) \* 2 - 0 = 258 in dimension 2, allowed is at most 255",
        lambda: F.conv_transpose2d(x(1, 1, 2, 2), x(1, 1, 130, 1), dilation=2, padding=(3, 0)),
    ),
    "conv_transpose3d, more padding than window": (
        lambda: F.conv_transpose3d(x(1, 1, 4, 4, 4), x(1, 1, 1, 1, 1), padding=(0, 1, 0)),
        INVALID_ARGUMENT,
        r"\(1 - 1\) \* 1 - 1 = -1 in dimension 3",
        lambda: F.conv_transpose3d(x(1, 1, 4, 4, 4), x(1, 1, 1, 1, 1), padding=(1, 0, 0)),
    ),
    "the gradient of conv2d, a window": (
        lambda: backward(lambda t: F.conv2d(t, x(1, 1, 1, 256)), x(1, 1, 1, 300)),
        PART,
        "weight has the value 256",
        lambda: backward(lambda t: F.conv2d(t, x(1, 1, 1, 255)), x(1, 1, 1, 300)),
    ),
}
PRODUCTS: dict[str, Callable[[Callable[..., torch.Tensor], Callable[..., torch.Tensor]], torch.Tensor]] = {
    "mm": lambda m, n: torch.mm(m(2, 3), n(3, 4)),
    "bmm": lambda m, n: torch.bmm(m(2, 2, 3), n(2, 3, 4)),
    "matmul": lambda m, n: m(2, 2, 3) @ n(3, 4),
    "matmul by a vector": lambda m, n: m(2, 3) @ n(3),
    "linear": lambda m, n: F.linear(m(2, 3), n(4, 3)),
    "addmm": lambda m, n: torch.addmm(m(2, 4), m(2, 3), n(3, 4)),
    "baddbmm": lambda m, n: torch.baddbmm(m(2, 2, 4), m(2, 2, 3), n(2, 3, 4)),
    "addbmm": lambda m, n: torch.addbmm(m(2, 4), m(2, 2, 3), n(2, 3, 4)),
}
ATTENTION: dict[str, tuple[Call, int, str, Call]] = {
    "a band that no score is in": (
        lambda: masked(pre_tockens=-1, next_tockens=-1),
        PART,
        r"PreTokens\[-1\] and nextTokens\[-1\] config error, there is no valid data block",
        lambda: masked(pre_tockens=-1, next_tockens=1),
    ),
    "a band left of all keys": (
        lambda: masked(pre_tockens=4, next_tockens=-4),
        PART,
        "there is no valid data block",
        lambda: masked(pre_tockens=3, next_tockens=-3),
    ),
    "a band right of all keys": (
        lambda: masked(pre_tockens=-6, next_tockens=9),
        PART,
        "there is no valid data block",
        lambda: masked(pre_tockens=-5, next_tockens=5),
    ),
    "a band from the lower right corner": (
        lambda: masked(pre_tockens=-3, next_tockens=2, sparse_mode=4, atten_mask=triangle()),
        PART,
        "there is no valid data block",
        lambda: masked(pre_tockens=-3, next_tockens=3, sparse_mode=4, atten_mask=triangle()),
    ),
    "packed, more queries than keys": (
        lambda: packed([3, 2], [3, 1], sparse_mode=3),
        PART,
        "exist invalid row",
        lambda: torch.cat([packed([3, 2], [3, 1], sparse_mode=2), packed([3, 1], [3, 2], sparse_mode=3)]),
    ),
    "packed, a band before all queries": (
        lambda: packed([3, 2], [3, 1], sparse_mode=4, pre_tockens=4, next_tockens=0),
        PART,
        "has invalid row",
        lambda: packed([3, 2], [3, 1], sparse_mode=4, pre_tockens=4, next_tockens=1),
    ),
    "packed, a band of nothing": (
        lambda: packed([3, 2], [3, 2], sparse_mode=4, pre_tockens=-1, next_tockens=2),
        PART,
        "has invalid data block",
        lambda: packed([3, 2], [3, 2], sparse_mode=4, pre_tockens=0, next_tockens=2),
    ),
    "packed, the last sequence as a band": (
        lambda: packed([3, 2], [3, 2], sparse_mode=7, pre_tockens=1, next_tockens=0),
        PART,
        "the band does not reach all keys",
        lambda: packed([3, 2], [3, 2], sparse_mode=7, pre_tockens=2, next_tockens=0),
    ),
    "packed, the first sequence as a band": (
        lambda: packed([3, 2], [2, 2], sparse_mode=8, pre_tockens=2, next_tockens=0),
        PART,
        "has invalid row",
        lambda: packed([3, 2], [2, 2], sparse_mode=8, pre_tockens=2, next_tockens=1),
    ),
    "packed, within a window": (
        lambda: packed([3, 4], [3, 2], sparse_mode=0, pre_tockens=1, next_tockens=0, atten_mask=whole(4, 3)),
        PART,
        "has invalid row",
        lambda: packed([3, 4], [3, 2], sparse_mode=0, pre_tockens=2, next_tockens=0, atten_mask=whole(4, 3)),
    ),
}
OTHERS: dict[str, tuple[Call, int, str, Call]] = {
    "a head": (
        lambda: attention(h(1, 2, 4, 769)),
        INVALID_ARGUMENT,
        "Head dim must <= 768, but got 769",
        lambda: attention(h(1, 2, 4, 768)),
    ),
    "a head of values": (
        lambda: attention(h(1, 2, 4, 32), h(1, 2, 4, 64)),
        INVALID_ARGUMENT,
        "only support kD >= vD",
        lambda: attention(h(1, 2, 4, 64), h(1, 2, 4, 32)),
    ),
    "rotary_mul by halves": (
        lambda: rotary(898),
        TILING,
        "its last size is 898, allowed is at most 896",
        lambda: rotary(896),
    ),
    "layer_norm, a narrow weight": (
        lambda: F.layer_norm(x(2, 4), (4,), h(4), h(4)),
        INVALID_ARGUMENT,
        "allowed are float32 and the dtype of input",
        lambda: F.layer_norm(h(2, 4), (4,), x(4), x(4)),
    ),
    "rms_norm, a narrow weight": (
        lambda: torch_npu.npu_rms_norm(x(2, 4), b(4))[0],
        INVALID_ARGUMENT,
        "and float32 beside a narrower one",
        lambda: torch_npu.npu_rms_norm(b(2, 4), x(4))[0],
    ),
    "the gradient of a bfloat16 padding": (
        lambda: backward(lambda t: F.pad(t, (8, 8, 8, 8), mode="reflect"), b(1, 1, 32, 32)),
        INVALID_ARGUMENT,
        "bf16 only supports h dim no pad or padding values less than 7 or equal 7",
        lambda: (
            backward(lambda t: F.pad(t, (7, 7, 7, 7), mode="reflect"), b(1, 1, 32, 32))
            + backward(lambda t: F.pad(t, (8, 8, 0, 0), mode="replicate"), b(1, 1, 32, 32))
            + backward(lambda t: F.pad(t, (8, 8, 8, 8), mode="reflect"), x(1, 1, 32, 32))
        ),
    ),
    "deep_norm of a vector": (
        lambda: torch_npu.npu_deep_norm(x(4), x(4), x(4), x(4))[2],
        TILING,
        "x dim num should be greater than gamma dim num",
        lambda: torch_npu.npu_deep_norm(x(1, 4), x(1, 4), x(4), x(4))[2],
    ),
    "gelu_mul of a vector": (
        lambda: torch_npu.npu_gelu_mul(x(4)),
        TILING,
        "Input shape dim should be no less than 2",
        lambda: torch_npu.npu_gelu_mul(x(1, 4)),
    ),
    "group_norm, epsilon": (
        lambda: F.group_norm(x(2, 4, 8), 2, eps=0.0),
        INVALID_ARGUMENT,
        "eps is 0, allowed is > 0",
        lambda: F.group_norm(x(2, 4, 8), 2, eps=1e-30),
    ),
    "the gradient of group_norm, a group": (
        lambda: backward(lambda t: F.group_norm(t, 1), x(1, 8001, 2)),
        INVALID_ARGUMENT,
        "allowed are at most 8000 in a group",
        lambda: backward(lambda t: F.group_norm(t, 1), x(1, 8000, 2)),
    ),
}
LIMITS = POOLING | CONVOLUTION | ATTENTION | OTHERS


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize("case", LIMITS)
def test_what_is_refused(case: str) -> None:
    call, code, words, _ = LIMITS[case]
    said = refusal(call)
    assert f"error code is {code}" in said and re.search(words, said), said
    assert ("EZ1008" in said and "Failed to execute tiling." in said) == (code != INVALID_ARGUMENT), said
    assert "on Ascend910B1; with VNPU_CHECKS=any the virtual NPU computes it all the same" in said
    assert (x(2) + 1).tolist() == [0, 1]  # and the device lives


@pytest.mark.parametrize("case", LIMITS)
def test_the_neighbour_that_passes(case: str) -> None:
    assert LIMITS[case][3]().float().isfinite().all()


@pytest.mark.parametrize("right", [h, b, x])
@pytest.mark.parametrize("left", [h, b, x])
@pytest.mark.parametrize("product", PRODUCTS)
def test_factors_of_any_two_dtypes(
    product: str, left: Callable[..., torch.Tensor], right: Callable[..., torch.Tensor]
) -> None:
    """They meet in float32, though the pages know no product of bfloat16 and another (ops-nn: matmul_util.cpp,
    Dav2201MatMulRule::GetUpperDtypeByLookUpTable)."""
    compute = PRODUCTS[product]
    found = compute(left, right)
    assert found.dtype == left(1).dtype
    expected = compute(*[lambda *shape: x(*shape, dtype=torch.float64, device="cpu")] * 2)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=0)


def test_neither_factor_is_narrowed() -> None:
    """bfloat16 holds numbers that float16 does not, and float16 those between two of bfloat16's."""
    large, fine, out = b(1, 1).fill_(2.0**17), h(1, 1).fill_(1 + 2.0**-10), x(1, 1)
    for factors in ((large, fine), (fine, large)):
        run("aclnnMm", *factors, out, 0)
        assert out.item() == 2.0**17 + 2.0**7


def test_narrow_factors_in_blocks_are_of_one_dtype() -> None:
    """(ops-nn: aclnn_matmul.cpp, CheckWeightNzDtype)"""
    for left, right in ((h, b), (b, h)):
        status, message = first_phase("aclnnMatmulWeightNz", left(2, 16), right(16, 16), h(2, 16), 0)
        assert status == INVALID_ARGUMENT and "must be both DT_BF16 or both DT_FLOAT16" in message, message
    for left, right in ((h, h), (b, b), (x, b)):
        status, message = first_phase("aclnnMatmulWeightNz", left(2, 16), right(16, 16), left(2, 16), 0)
        assert status == 0, message


def test_operators_that_torch_does_not_choose() -> None:
    image, indices, small = x(1, 1, 8, 8), torch.zeros(1, 1, 4, 4, dtype=torch.int32).npu(), x(1, 1, 4, 4)
    gaps, none = [[2], [2], [0], [2]], [[2], [2], [0], [1]]
    for name, operands, results in (
        ("aclnnMaxPool2dWithIndices", [image], [small, indices]),
        ("aclnnMaxPool2dWithIndicesBackward", [small, image, indices], [image]),
    ):
        status, message = first_phase(name, *operands, *gaps, False, *results)
        assert status == INVALID_ARGUMENT and "dilation only support 1" in message
        status, message = first_phase(name, *operands, *none, False, *results)
        assert status == 0, message
    for height, code in ((255, INVALID_ARGUMENT), (254, 0)):  # 51 and 50 times smaller, which torch_npu does on the CPU
        for name in ("aclnnUpsampleBilinear2dAA", "aclnnUpsampleBicubic2dAA"):
            image = x(1, 1, height, 8)
            status, message = first_phase(name, image, [5, 8], False, 0.0, 0.0, x(1, 1, 5, 8))
            assert status == code and ("Scales should not exceed 50" in message) == (code != 0), message
    for depth, code in ((2, INVALID_ARGUMENT), (3, 0)):  # a window of 3, which torch_npu does not let through
        volume, window = x(1, 1, depth, 4, 4), [[3], [1], [1]]
        status, message = first_phase("aclnnAvgPool3d", volume, *window, False, True, 0, volume)
        assert status == code and ("kernelSize has the value 3" in message) == (code != 0), message


def test_a_truth_value_is_not_raised_to_another() -> None:
    """Which ATen cannot either: no switch lifts it (ops-math: aclnn_pow_tensor_tensor.cpp)."""
    said = refusal(lambda: x(3).bool() ** x(3).bool())
    assert "error code is 161002" in said and "Self and exponent dtype are bool is not supported" in said
    assert (x(3).bool() ** x(3)).tolist() == [1, 1, 1] and (x(3) ** x(3).bool()).tolist() == [-1, 1, 1]


def test_half_a_pair_is_not_rotated() -> None:
    """Nor here (ops-transformer: rope_rotate_half_tiling.cpp, CheckShapeSupport)."""
    said = refusal(lambda: rotary(7))
    assert f"error code is {TILING}" in said and "input last dim (head_dim) must be an even number" in said, said
    assert rotary(6).isfinite().all()


def test_what_the_pages_forbid_and_the_code_takes() -> None:
    """Sorting bfloat16 along an axis of size 1 (ops-math: aclnn_sort.cpp copies then), and attention over nothing
    (ops-transformer: aclnn_flash_attention_score.cpp and its tiling for empty input)."""
    assert torch.sort(b(3, 1), 1)[1].flatten().tolist() == [0, 0, 0]
    assert attention(h(1, 2, 0, 64)).shape == (1, 2, 0, 64)
    queries, keys = h(1, 2, 4, 64), h(1, 2, 0, 64)
    found = torch_npu.npu_fusion_attention(queries, keys, keys, 2, "BNSD")[0]
    assert found.shape == queries.shape and not found.any()


def test_the_switch_lifts_them() -> None:
    """Each of the refused calls, compared with the CPU where that has it."""
    calls = {name: inspect.getsource(row[0]).strip() for name, row in (POOLING | CONVOLUTION).items()}
    assert all(source.startswith("lambda: ") for source in calls.values())
    sources = [source.removeprefix("lambda: ").rstrip(",") for name, source in calls.items()]
    program = inspect.cleandoc("""
        import torch
        F, FLOAT, HALF = torch.nn.functional, torch.float32, torch.float16
        device = "cpu"
        def x(*shape, dtype=FLOAT):
            return (torch.arange(float(torch.Size(shape).numel())).reshape(shape) % 5 - 1).to(device, dtype)
        def h(*shape):
            return x(*shape, dtype=HALF)
    """)
    program += "\n" + inspect.getsource(backward).replace("Callable[[torch.Tensor], torch.Tensor]", "object")
    for source in sources:
        program += f"\ndevice = 'cpu'; expected = {source}\ndevice = 'npu'; found = {source}"
        program += "\ntorch.testing.assert_close(found.cpu(), expected, rtol=1e-2, atol=1e-2)"
    ended = python(program + f"\nprint({len(sources)})", VNPU_CHECKS="any")
    assert ended.stdout == f"{len(sources)}\n", ended.stderr


def test_the_switch_lifts_attention_too() -> None:
    """CPU has no such operator to compare with: they compute."""
    program = f"import sys; sys.path.insert(0, {__file__.rpartition('/')[0]!r})\n"
    program += "import test_hardware_limits as limits\n"
    program += "print(sum(row[0]().isfinite().all().item() for row in limits.ATTENTION.values()))"
    ended = python(program, VNPU_CHECKS="any")
    assert ended.stdout == f"{len(ATTENTION)}\n", ended.stderr
