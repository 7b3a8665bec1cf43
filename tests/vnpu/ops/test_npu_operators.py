"""torch_npu's own operators that ports of large models call: RMS norm, rotary embedding, SwiGLU, fast GELU, casts."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, check, compare, layouts, random

TILING_REFUSED = 561002  # ACLNN_ERR_INNER_TILING_ERROR


def rms_norm(x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    dims = tuple(range(-gamma.dim(), 0))
    return x * (x.square().mean(dims, keepdim=True) + epsilon).rsqrt() * gamma


def statistics(x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    return (x.square().mean(tuple(range(-gamma.dim(), 0)), keepdim=True) + epsilon).rsqrt()


@pytest.mark.parametrize(("sizes", "normal"), [((2, 3, 8), (8,)), ((2, 3, 8), (3, 8)), ((8,), (8,)), ((0, 8), (8,))])
def test_rms_norm(sizes: tuple[int, ...], normal: tuple[int, ...]) -> None:
    gamma = random(*normal, low=0.5, high=1.5)
    check(
        lambda x, g: torch_npu.npu_rms_norm(x, g, 1e-6)[0],
        random(*sizes),
        gamma,
        reference=rms_norm,
        ulps=4,
        grad=0 not in sizes and len(sizes) > 1,
    )


def test_rms_norm_in_every_memory_layout() -> None:
    gamma = random(6, low=0.5, high=1.5)
    for x in layouts(random(4, 6)):
        check(
            lambda x, g: torch_npu.npu_rms_norm(x, g, 1e-5)[0],
            x,
            gamma,
            reference=lambda x, g: rms_norm(x, g, 1e-5),
            dtypes=FLOATS[:1],
            ulps=8,
        )


def test_rms_norm_statistics_and_mixed_dtypes() -> None:
    x, gamma = random(2, 3, 8).half(), random(8, low=0.5, high=1.5).float()
    y, rstd = torch_npu.npu_rms_norm(x.npu(), gamma.npu(), 1e-6)
    assert y.dtype == torch.float16 and rstd.dtype == torch.float32
    compare(y, rms_norm(x.double(), gamma.double()), torch.float16)
    compare(rstd, statistics(x.double(), gamma.double()), torch.float32)


def test_gemma_rms_norm() -> None:
    check(
        lambda x, g: torch_npu.npu_gemma_rms_norm(x, g, 1e-6)[0],
        random(4, 8),
        random(8),
        reference=lambda x, g: rms_norm(x, g + 1),
        grad=False,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_add_rms_norm(dtype: torch.dtype) -> None:
    a, b, gamma = random(2, 3, 8).to(dtype), random(2, 3, 8, seed=1).to(dtype), random(8, low=0.5).to(dtype)
    total = (a + b).double()
    y, rstd, x = torch_npu.npu_add_rms_norm(a.npu(), b.npu(), gamma.npu(), 1e-6)
    compare(y, rms_norm(total, gamma.double()), dtype)
    compare(rstd, statistics(total, gamma.double()), torch.float32)
    compare(x, total, dtype)
    first, second = a.npu(), b.npu()
    out = torch.empty(2, 3, 1, device="npu")
    run("aclnnInplaceAddRmsNorm", first, second, gamma.npu(), 1e-6, out)
    compare(first, rms_norm(total, gamma.double()), dtype)
    compare(second, total, dtype)
    compare(out, statistics(total, gamma.double()), torch.float32)


def test_add_rms_norm_cast() -> None:
    a, b, gamma = (t.half() for t in (random(3, 8), random(3, 8, seed=1), random(8, low=0.5)))
    wide, narrow = torch.empty(3, 8, device="npu"), torch.empty(3, 8, dtype=torch.float16, device="npu")
    rstd, x = torch.empty(3, 1, device="npu"), torch.empty_like(narrow)
    run("aclnnAddRmsNormCast", a.npu(), b.npu(), gamma.npu(), 1e-6, wide, narrow, rstd, x)
    expected = rms_norm((a + b).double(), gamma.double())
    compare(wide, expected, torch.float32, ulps=4)
    compare(narrow, expected, torch.float16)
    assert torch.equal(x.cpu(), a + b)


def rotate(x: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize("factor", [(1, 5, 1, 8), (2, 5, 1, 8), (2, 5, 3, 8)])
def test_rotary_mul(mode: str, factor: tuple[int, ...]) -> None:
    check(
        lambda x, cos, sin: torch_npu.npu_rotary_mul(x, cos, sin, mode),
        random(2, 5, 3, 8),
        random(*factor, seed=1),
        random(*factor, seed=2),
        reference=lambda x, cos, sin: x * cos + rotate(x, mode) * sin,
        ulps=4,
    )


@pytest.mark.parametrize("mode", [2, 3])
def test_other_rotary_modes(mode: int) -> None:
    x, cos, sin = (random(2, 5, 3, 8, seed=i) for i in range(3))
    if mode == 2:
        a, b, c, d = x.chunk(4, -1)
        straight, turned = x, torch.cat((-b, a, -d, c), -1)
    else:
        even, odd = x[..., ::2], x[..., 1::2]
        straight, turned = torch.cat((even, odd), -1), torch.cat((-odd, even), -1)
    expected = straight * cos + turned * sin
    device = [t.float().npu() for t in (x, cos, sin)]
    out, again = torch.empty_like(device[0]), torch.empty_like(device[0])
    run("aclnnRotaryPositionEmbedding", *device, mode, out)
    run("aclnnRotaryPositionEmbeddingV2", *device, mode, None, again)
    compare(out, expected, torch.float32, ulps=8)
    assert torch.equal(out, again)

    # The gradient is the transposed map: <grad, f(x)> = <f'(grad), x>.
    grad = random(2, 5, 3, 8, seed=7)
    back, cos_grad, sin_grad = (torch.empty_like(device[0]) for _ in range(3))
    run("aclnnRotaryPositionEmbeddingGrad", grad.float().npu(), *device[1:], device[0], mode, back, cos_grad, sin_grad)
    assert (back.cpu() * x).sum().item() == pytest.approx((grad * expected).sum().item(), rel=1e-4)
    compare(cos_grad, grad * straight, torch.float32, ulps=8)
    compare(sin_grad, grad * turned, torch.float32, ulps=8)


def test_rotary_of_query_and_key_in_place() -> None:
    query, key = random(2, 5, 3, 128), random(2, 5, 1, 128, seed=1)
    cos, sin = random(2, 5, 1, 128, seed=2), random(2, 5, 1, 128, seed=3)
    device = [t.float().npu() for t in (query, key, cos, sin)]
    run("aclnnApplyRotaryPosEmb", *device, 1)
    compare(device[0], query * cos + rotate(query, "half") * sin, torch.float32, ulps=8)
    compare(device[1], key * cos + rotate(key, "half") * sin, torch.float32, ulps=8)


def test_what_is_not_rotated_at_once() -> None:
    """(ops-transformer: apply_rotary_pos_emb_tiling.cpp, CheckParams)"""

    def status(query: tuple[int, ...], key: tuple[int, ...], cos: tuple[int, ...], layout: int = 1) -> tuple[int, str]:
        operands = [torch.zeros(sizes, device="npu") for sizes in (query, key, cos, cos)]
        return first_phase("aclnnApplyRotaryPosEmb", *operands, layout)

    one = (2, 5, 1, 128)
    assert status((2, 5, 3, 128), one, one) == (0, "")
    for call, words in (
        ((one, one, one, 3), "layout is not one"),
        ((one, one, (1, 5, 1, 128)), "all input dim0 must equal"),
        ((one, one, (2, 1, 1, 128)), "all input dim1 must equal"),
        (((2, 5, 1, 64), (2, 5, 1, 64), (2, 5, 1, 64)), "last dims is not 128"),
        (((2, 5, 3, 128), (2, 5, 3, 128), (2, 5, 3, 128)), "cos dim2 is not one"),
        (((0, 5, 1, 128), (0, 5, 1, 128), (0, 5, 1, 128)), "not empty"),
    ):
        code, message = status(*call)
        assert code == TILING_REFUSED and words in message, message


@pytest.mark.parametrize(("sizes", "dim"), [((3, 8), -1), ((4, 3), 0), ((2, 6, 3), 1), ((0, 8), -1)])
def test_swiglu(sizes: tuple[int, ...], dim: int) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        gate, value = x.chunk(2, dim)
        return torch.nn.functional.silu(gate) * value

    for x in layouts(random(*sizes)) if 0 not in sizes else [random(*sizes)]:
        check(lambda x: torch_npu.npu_swiglu(x, dim=dim), x, reference=reference, ulps=4, grad=0 not in sizes)


@pytest.mark.parametrize("sizes", [(3, 4), (), (0, 2)])
def test_fast_gelu(sizes: tuple[int, ...]) -> None:
    for x in layouts(random(*sizes, low=-4, high=4)):
        check(torch_npu.npu_fast_gelu, x, reference=lambda x: x * torch.sigmoid(1.702 * x), ulps=4)


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.int32, torch.bool])
def test_dtype_cast(target: torch.dtype) -> None:
    x = random(3, 4, low=-9, high=9).float()
    assert torch.equal(torch_npu.npu_dtype_cast(x.npu(), target).cpu(), x.to(target))


@pytest.mark.parametrize("format", [0, 2])
def test_format_cast_between_base_formats(format: int) -> None:
    x = random(2, 3, 4, 5).float()
    assert torch.equal(torch_npu.npu_format_cast(x.npu(), format).cpu(), x)


def test_refusals() -> None:
    x, gamma, narrow = (torch.ones(*s, device="npu") for s in ((2, 8), (8,), (2, 4)))
    rstd = torch.ones(2, 1, device="npu")
    four = torch.ones(1, 2, 1, 8, device="npu")
    cases: list[tuple[str, tuple[Any, ...], str]] = [
        ("aclnnRmsNorm", (x, narrow[0], 1e-6, x, rstd), "parameter gamma is float32[4], expected the last sizes of x"),
        ("aclnnRmsNorm", (x, gamma, 1e-6, x, x), "parameter rstdOut is float32[2, 8], expected 2 elements"),
        ("aclnnRmsNorm", (x.int(), gamma, 1e-6, x, rstd), "parameter x has dtype int32"),
        ("aclnnSwiGlu", (x, 5, narrow), "parameter dim is 5"),
        ("aclnnSwiGlu", (x, -1, x), "parameter out has shape [2, 8], expected [2, 4]"),
        ("aclnnSwiGlu", (torch.ones(2, 3, device="npu"), -1, x), "its size at dim -1 must be even"),
        ("aclnnFastGelu", (x, narrow), "parameter out has shape [2, 4], expected [2, 8]"),
        ("aclnnRotaryPositionEmbedding", (four, four, four, 7, four), "parameter mode is 7, allowed are 0 to 3"),
        ("aclnnRotaryPositionEmbedding", (four, gamma, gamma, 0, four), "parameter cos is float32[8]"),
        ("aclnnRotaryPositionEmbeddingV2", (four, four, four, 0, x, four), "has no rotation by a matrix"),
    ]
    for name, arguments, words in cases:
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
