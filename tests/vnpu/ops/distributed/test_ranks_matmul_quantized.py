"""Sums over all ranks of products of int8 matrices, against sums in float64 over what all ranks have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT
from ranks import group, refusal, run_ranks

TILING = 561002
HALF, BFLOAT, F32 = torch.float16, torch.bfloat16, torch.float32
RANKS, M, K, N = 2, 6, 64, 10
MODE = {"V5": ["ai_cpu"]}  # what adds the parts, which the last versions are told


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    with group(RANKS) as made:
        yield made


def whole(*shape: int) -> list[torch.Tensor]:
    return [torch.randint(-20, 20, shape, dtype=torch.int8) for _ in range(RANKS)]


def on(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.to(f"npu:{rank}") for rank, tensor in enumerate(tensors)]


def results(dtype: torch.dtype, *shape: int) -> list[torch.Tensor]:
    return [torch.full(shape, 7.0, dtype=dtype, device=f"npu:{rank}") for rank in range(RANKS)]


def near(actual: torch.Tensor, expected: torch.Tensor, parts: float) -> None:
    """`parts`: the largest of what the ranks add, which is rounded before it is added."""
    tolerance = 2e-3 if actual.dtype == HALF else 1.6e-2
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance * parts)


def packed(scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A scale as the fixed pipe takes it, and the number that it then is."""
    made = torch_npu.npu_trans_quant_param(scale.npu()).cpu()
    return made, (made & 0xFFFFFFFF).to(torch.int32).view(F32)


@pytest.mark.parametrize("version", ["", "V2", "V3", "V4", "V5"])
@pytest.mark.parametrize("kind", ["packed", "bfloat16", "tokens"])
def test_products_of_int8(name: str, version: str, kind: str) -> None:
    if kind == "tokens" and not version:
        pytest.skip("the first version has no scales of rows")
    dtype = HALF if kind != "bfloat16" else BFLOAT
    x1, x2 = whole(M, K), whole(K, N)
    bias = [torch.randint(-50, 50, (N,), dtype=torch.int32) for _ in range(RANKS)]
    x3 = [torch.rand(M, N).to(dtype) for _ in range(RANKS)]
    scale, rows = 0.001 + torch.rand(N) / 1000, None
    given, real = scale, scale.double()
    if kind == "packed":
        given, rounded = packed(scale)
        real = rounded.double()
    elif kind == "bfloat16":
        given = scale.to(BFLOAT)
        real = given.double()
    else:
        rows = [torch.rand(M) for _ in range(RANKS)]
    parts = []
    for r in range(RANKS):
        value = (x1[r].double() @ x2[r].double() + bias[r]) * real
        parts.append(value * (1 if rows is None else rows[r].double().unsqueeze(1)) + x3[r].double())
    a, b, c, d, out = on(x1), on(x2), on(bias), on(x3), results(dtype, M, N)
    columns, tokens = on([given] * RANKS), None if rows is None else on(rows)
    calls = []
    for r in range(RANKS):
        token: Any = None if tokens is None else tokens[r]
        scales = {"": [columns[r]], "V4": [token, columns[r], None, None], "V5": [token, columns[r], None, None]}.get(
            version, [columns[r], token, *[None] * (2 * (version == "V3"))]
        )
        mode, later = MODE.get(version, []), [0, 0] if version in ("V4", "V5") else []
        calls.append([a[r], b[r], c[r], d[r], *scales, name, "sum", *mode, 0, 1, *later, out[r]])
    run_ranks(f"aclnnQuantMatmulAllReduce{version}", calls)
    largest = max(float(part.abs().max()) for part in parts)
    for each in out:
        near(each, torch.stack(parts).sum(0), largest)
        assert torch.equal(each.cpu(), out[0].cpu())


@pytest.mark.parametrize("version", ["V3", "V4", "V5"])
def test_parts_that_travel_as_int8(name: str, version: str) -> None:
    x1, x2, columns = whole(2, M, K), whole(K, N), torch.full((N,), 0.002)
    rows = [torch.rand(2 * M) for _ in range(RANKS)]
    parts = torch.stack(
        [(x1[r].double() @ x2[r].double()) * 0.002 * rows[r].double().view(2, M, 1) for r in range(RANKS)]
    )
    there = (parts.abs().amax((0, 1, 2)) / 127).half()
    back = (there.float() * 1.5).half()
    whole_parts = (parts.half().double() / there.double()).round().clamp(-128, 127)
    total = (whole_parts.sum(0) * (there.double() / back.double())).round().clamp(-128, 127)
    a, b, c, t, u, v = (on(x1), on(x2), on([columns] * RANKS), on(rows), on([there] * RANKS), on([back] * RANKS))
    out = results(HALF, 2, M, N)
    calls = []
    for r in range(RANKS):
        scales = [c[r], t[r], u[r], v[r]] if version == "V3" else [t[r], c[r], u[r], v[r]]
        mode, later = MODE.get(version, []), [0, 0] if version != "V3" else []
        calls.append([a[r], b[r], None, None, *scales, name, "sum", *mode, 0, 1, *later, out[r]])
    run_ranks(f"aclnnQuantMatmulAllReduce{version}", calls)
    for each in out:
        away = (each.cpu().double() - total * back.double()).abs() / back.double()
        assert (away < 1.1).all()  # a rounding that falls the other way, and that of the result
        assert (away < 0.1).double().mean() > 0.95


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("scaled", ["one", "columns", "groups"])
@pytest.mark.parametrize("moved", [True, False])
def test_weights_of_int8(name: str, dtype: torch.dtype, scaled: str, moved: bool) -> None:
    x1, x2 = [(torch.rand(M, K) - 0.5).to(dtype) for _ in range(RANKS)], whole(K, N)
    shape, size = {"one": ((1,), 0), "columns": ((1, N), 0), "groups": ((2, N), 32)}[scaled]
    scale = [(0.01 + torch.rand(shape) / 100).to(dtype) for _ in range(RANKS)]
    offset = [torch.randint(-5, 5, shape).to(dtype) for _ in range(RANKS)] if moved else None
    bias = [torch.rand(N).to(dtype) for _ in range(RANKS)]
    parts = []
    for r in range(RANKS):
        along = scale[r].double(), torch.zeros(()).double() if offset is None else offset[r].double()
        by, plus = (one.repeat_interleave(32, 0) if size else one for one in along) if size and moved else along
        if size and not moved:
            by = by.repeat_interleave(32, 0)
        parts.append(x1[r].double() @ ((x2[r].double() + plus) * by) + bias[r].double())
    a, b, c, s = on(x1), on(x2), on(bias), on(scale)
    o = None if offset is None else on(offset)
    out = results(dtype, M, N)
    for version, mode in (("", []), ("V2", [None])):
        calls = [
            [a[r], b[r], c[r], s[r], None if o is None else o[r], None, name, "sum", *mode, 0, 1, size, out[r]]
            for r in range(RANKS)
        ]
        run_ranks(f"aclnnWeightQuantMatmulAllReduce{version}", calls)
        for each in out:
            near(each, torch.stack(parts).sum(0), max(float(part.abs().max()) for part in parts))
            each.zero_()


def test_refused(name: str) -> None:
    x1, x2 = (torch.ones(shape, dtype=torch.int8, device="npu:0") for shape in ((M, K), (K, N)))
    scale, out = torch.ones(N, device="npu:0"), torch.ones(M, N, dtype=HALF, device="npu:0")

    def said(*, scales: list[Any] | None = None, later: tuple[int, int] = (0, 0)) -> tuple[int, str]:
        given = [None, scale, None, None] if scales is None else scales
        return refusal("aclnnQuantMatmulAllReduceV4", x1, x2, None, None, *given, name, "sum", 0, 1, *later, out)

    assert said() == (0, "")
    there = torch.ones(N, dtype=HALF, device="npu:0")
    for (status, message), code, words in (
        (said(scales=[None, scale[:3], None, None]), INVALID_ARGUMENT, "expected [1], [10] or [1, 10]"),
        (said(scales=[None, scale, there, None]), TILING, "come together"),
        (said(scales=[None, scale.bfloat16(), None, None]), INVALID_ARGUMENT, ""),
        (said(later=(128, 0)), INVALID_ARGUMENT, "groupSize is 128"),
    ):
        assert status == code and words in message, message
    five = [x1, x2, None, None, None, scale, None, None, name, "sum"]
    assert refusal("aclnnQuantMatmulAllReduceV5", *five, None, 0, 1, 0, 0, out) == (0, "")
    status, message = refusal("aclnnQuantMatmulAllReduceV5", *five, "ccu", 0, 1, 0, 0, out)
    assert status == INVALID_ARGUMENT and 'commMode is "ccu"' in message, message
    weights = [torch.ones(M, K, dtype=HALF, device="npu:0"), x2, None, there, None, None, name, "sum", 0, 1]
    assert refusal("aclnnWeightQuantMatmulAllReduce", *weights, 0, out) == (0, "")
    status, message = refusal("aclnnWeightQuantMatmulAllReduce", *weights, 48, out)
    assert status == INVALID_ARGUMENT and "antiquantGroupSize is 48" in message, message
    status, message = refusal("aclnnWeightQuantMatmulAllReduceV2", *weights[:8], "aiv", *weights[8:], 0, out)
    assert status == INVALID_ARGUMENT and 'commMode is "aiv"' in message, message
