"""Matrix products before and behind an all-to-all, against products in float64 over what all ranks have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT
from ranks import group, refusal, run_ranks

TILING = 561002
HALF, BFLOAT, F32, INT8, INT32 = torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int32
RANKS, M, H, N = 2, 6, 16, 8
Packed = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    with group(RANKS) as made:
        yield made


def drawn(*shape: int, dtype: torch.dtype = HALF) -> list[torch.Tensor]:
    """One for each rank."""
    return [(torch.rand(shape) - 0.5).to(dtype) for _ in range(RANKS)]


def whole(*shape: int, most: int = 20) -> list[torch.Tensor]:
    return [torch.randint(-most, most, shape, dtype=INT8) for _ in range(RANKS)]


def on(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.to(f"npu:{rank}") for rank, tensor in enumerate(tensors)]


def empty(*shape: int, dtype: torch.dtype = HALF) -> list[torch.Tensor]:
    return [torch.full(shape, 7.0, device=f"npu:{rank}").to(dtype) for rank in range(RANKS)]


def together(x1: list[torch.Tensor]) -> list[torch.Tensor]:
    """What each rank has after the exchange: its rows of all ranks' columns."""
    return [torch.cat([one.chunk(RANKS)[r] for one in x1], 1) for r in range(RANKS)]


def apart(made: list[torch.Tensor]) -> list[torch.Tensor]:
    """What each rank has after the exchange of products: its columns of all ranks' rows."""
    return [torch.cat([one.chunk(RANKS, 1)[r] for one in made]) for r in range(RANKS)]


def near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-3 if actual.dtype == HALF else 8e-3
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def packed(values: torch.Tensor) -> torch.Tensor:
    """int4 in int32, the first in the lowest bits."""
    nibbles = (values.to(torch.int64) & 15).unflatten(-1, (-1, 8))
    words = (nibbles << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(INT32)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_exchange_and_multiply(name: str, dtype: torch.dtype, second: bool, transposed: bool) -> None:
    x1, x2 = drawn(M, H, dtype=dtype), drawn(RANKS * H, N, dtype=dtype)
    bias = drawn(N, dtype=HALF if dtype == HALF else F32) if second else None
    weights = [one.t().contiguous() for one in x2] if transposed else x2
    rows = together(x1)
    a, b, out, gathered = (on(x1), on(weights), empty(M // RANKS, N, dtype=dtype), empty(3, RANKS * H, dtype=dtype))
    c: list[Any] = [None] * RANKS if bias is None else on(bias)
    mode = ["aiv"] if second else []
    axes = [-2, -1] if second else None
    run_ranks(
        f"aclnnAlltoAllMatmul{'V2' if second else ''}",
        [
            [a[r], b[r], c[r], axes, name, *mode, False, transposed, out[r], gathered[r] if second else None]
            for r in range(RANKS)
        ],
    )
    for r in range(RANKS):
        near(out[r], rows[r].double() @ x2[r].double() + (0 if bias is None else bias[r].double()))
        assert not second or torch.equal(gathered[r].cpu(), rows[r])


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_multiply_and_exchange(name: str, dtype: torch.dtype, second: bool, transposed: bool) -> None:
    x1, x2 = drawn(5, H, dtype=dtype), drawn(H, N, dtype=dtype)
    bias = drawn(N, dtype=HALF if dtype == HALF else F32) if second else None
    weights = [one.t().contiguous() for one in x2] if transposed else x2
    a, b, out = on(x1), on(weights), empty(RANKS * 5, N // RANKS, dtype=dtype)
    c: list[Any] = [None] * RANKS if bias is None else on(bias)
    mode = ["aiv"] if second else []
    axes = [-1, -2] if second else None
    run_ranks(
        f"aclnnMatmulAlltoAll{'V2' if second else ''}",
        [[a[r], b[r], c[r], axes, name, *mode, False, transposed, out[r]] for r in range(RANKS)],
    )
    made = [
        p.double() @ q.double() + (0 if bias is None else bias[r].double())
        for r, (p, q) in enumerate(zip(x1, x2, strict=True))
    ]
    for each, expected in zip(out, apart(made), strict=True):
        near(each, expected)


def quantized(rows: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of whole numbers, and what each is worth. In float32: halves lie on either side, by how they are made."""
    largest = rows.float().abs().amax(1, keepdim=True)
    return (rows.float() * (most / largest)).nan_to_num(0).round().double(), largest.double() / most


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("smooth", [False, True])
def test_rows_quantized_when_they_have_come(name: str, dtype: torch.dtype, bits: int, smooth: bool) -> None:
    x1, x2 = drawn(M, H, dtype=dtype), whole(RANKS * H, N, most=2 ** (bits - 1))
    x1[0][0] = x1[1][0] = 0  # a row of zeros stays one
    scale, bias = [torch.rand(N) / 10 for _ in range(RANKS)], drawn(N, dtype=F32)
    factors = [(0.5 + torch.rand(RANKS * H)).to(dtype) for _ in range(RANKS)]
    a, b, c = on(x1), on([packed(one) for one in x2] if bits == 4 else x2), on(bias)
    d, e, out = on(scale), on(factors), empty(M // RANKS, N, dtype=dtype)
    rest = [7, 2, 0, -1, -1, 0, False, False]
    run_ranks(
        f"aclnnAlltoAllQuantMatmul{'V2' if smooth else ''}",
        [
            [
                a[r],
                b[r],
                c[r],
                e[r] if smooth else None,
                d[r],
                None,
                None,
                None,
                name,
                *(["aiv"] if smooth else []),
                None,
                *rest,
                out[r],
                None,
            ]
            for r in range(RANKS)
        ],
    )
    for r, rows in enumerate(together(x1)):
        rounded, worth = quantized(rows.float() * (factors[r].float() if smooth else 1), 2 ** (bits - 1) - 1)
        near(out[r], (rounded @ x2[r].double()) * worth * scale[r].double() + bias[r].double())


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
def test_int4_on_both_sides(name: str, dtype: torch.dtype) -> None:
    x1, x2 = whole(M, H, most=8), whole(RANKS * H, N, most=8)
    rows, columns = [torch.rand(M) for _ in range(RANKS)], [torch.rand(N) / 100 for _ in range(RANKS)]
    a, b = on([packed(one) for one in x1]), on([packed(one) for one in x2])
    c, d, out = on(rows), on(columns), empty(M // RANKS, N, dtype=dtype)
    gathered = empty(M // RANKS, RANKS * H // 8, dtype=INT32)
    run_ranks(
        "aclnnAlltoAllQuantMatmul",
        [
            [
                a[r],
                b[r],
                None,
                c[r],
                d[r],
                None,
                None,
                None,
                name,
                None,
                3,
                2,
                0,
                -1,
                -1,
                0,
                False,
                False,
                out[r],
                gathered[r],
            ]
            for r in range(RANKS)
        ],
    )
    for r, here in enumerate(together(x1)):
        own = rows[r].double().chunk(RANKS)[r].unsqueeze(1)
        near(out[r], (here.double() @ x2[r].double()) * own * columns[r].double())
        assert torch.equal(gathered[r].cpu(), packed(here))


@pytest.mark.parametrize(("dtype", "biased"), [(HALF, HALF), (BFLOAT, BFLOAT), (BFLOAT, F32)])
@pytest.mark.parametrize("second", [False, True])
def test_int8_products_exchanged(name: str, dtype: torch.dtype, biased: torch.dtype, second: bool) -> None:
    x1, x2, bias = whole(5, H), whole(H, N), drawn(N, dtype=biased)
    rows, columns = [torch.rand(5) for _ in range(RANKS)], [torch.rand(N) / 100 for _ in range(RANKS)]
    a, b, c, d, e, out = on(x1), on(x2), on(bias), on(rows), on(columns), empty(10, N // 2, dtype=dtype)
    mode = ["aiv"] if second else []
    run_ranks(
        f"aclnnQuantMatmulAlltoAll{'V2' if second else ''}",
        [
            [a[r], b[r], c[r], d[r], e[r], None, None, None, None, name, *mode, 3, 2, 0, -1, 0, False, False, out[r]]
            for r in range(RANKS)
        ],
    )
    made = [
        (x1[r].double() @ x2[r].double()) * rows[r].double().unsqueeze(1) * columns[r].double() + bias[r].double()
        for r in range(RANKS)
    ]
    for each, expected in zip(out, apart(made), strict=True):
        near(each, expected)


def h(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="npu:0")


def before(**other: Any) -> list[Any]:
    given: dict[str, Any] = {"x1": h(M, H), "x2": h(RANKS * H, N), "bias": None, "axes": None, "mode": "aiv"}
    given |= {"t1": False, "t2": False, "out": h(M // RANKS, N), "gathered": None} | other
    return [given[key] for key in ("x1", "x2", "bias", "axes")] + [
        ...,
        *(given[key] for key in ("mode", "t1", "t2", "out", "gathered")),
    ]


def behind(**other: Any) -> list[Any]:
    given: dict[str, Any] = {"x1": h(5, H), "x2": h(H, N), "out": h(10, N // RANKS)}
    return before(**given | {"axes": [-1, -2]} | other)[:-1]


def rounded(**other: Any) -> list[Any]:
    given: dict[str, Any] = {"x1": h(M, H), "x2": h(RANKS * H, N, dtype=INT8), "bias": None, "rows": None}
    given |= {"columns": h(N, dtype=F32), "comm": None, "out": h(M // RANKS, N), "mode": 7} | other
    return [
        given["x1"],
        given["x2"],
        given["bias"],
        given["rows"],
        given["columns"],
        given["comm"],
        None,
        None,
        ...,
        None,
        given["mode"],
        2,
        0,
        -1,
        -1,
        0,
        False,
        False,
        given["out"],
        None,
    ]


def integers(**other: Any) -> list[Any]:
    given: dict[str, Any] = {"x1": h(5, H, dtype=INT8), "x2": h(H, N, dtype=INT8), "bias": h(N), "mode": 3}
    given |= {"rows": h(5, dtype=F32), "columns": h(N, dtype=F32), "out": h(10, N // RANKS)} | other
    return [
        given["x1"],
        given["x2"],
        given["bias"],
        given["rows"],
        given["columns"],
        None,
        None,
        None,
        None,
        ...,
        given["mode"],
        2,
        0,
        -1,
        0,
        False,
        False,
        given["out"],
    ]


BEFORE, BEHIND = "aclnnAlltoAllMatmulV2", "aclnnMatmulAlltoAllV2"
ROUNDED, INTEGERS = "aclnnAlltoAllQuantMatmul", "aclnnQuantMatmulAlltoAll"
Refused = tuple[str, Callable[[], list[Any]], int, str]
REFUSED: list[Refused] = [
    (BEFORE, before, 0, ""),
    (BEFORE, lambda: before(mode="ai_cpu"), INVALID_ARGUMENT, 'commMode is "ai_cpu", allowed is aiv'),
    (BEFORE, lambda: before(axes=[-1, -2]), INVALID_ARGUMENT, "allowed are null and [-2, -1]"),
    (BEFORE, lambda: before(t1=True), INVALID_ARGUMENT, "transposeX1 is true"),
    (BEFORE, lambda: before(x2=h(N, RANKS * H).t()), INVALID_ARGUMENT, "not contiguous"),
    (BEFORE, lambda: before(x1=h(M, 0)), INVALID_ARGUMENT, "none may be empty"),
    (BEFORE, lambda: before(x1=h(0, H), out=h(0, N)), TILING, "is empty"),
    (BEFORE, lambda: before(x1=h(5, H)), TILING, "expected a multiple of 2 rows"),
    (BEFORE, lambda: before(x2=h(RANKS * H - 1, N)), TILING, "32 to sum over"),
    (BEFORE, lambda: before(out=h(M, N)), TILING, "expected [3, 8]"),
    (BEFORE, lambda: before(bias=h(N, dtype=F32)), TILING, "expected float16"),
    (BEFORE, lambda: before(bias=h(N, dtype=BFLOAT)), INVALID_ARGUMENT, ""),
    (BEFORE, lambda: before(bias=h(1)), INVALID_ARGUMENT, ""),
    (BEFORE, lambda: before(x1=h(M, H, dtype=F32)), INVALID_ARGUMENT, ""),
    (BEFORE, lambda: before(x1=h(M, 17501), x2=h(35002, N)), TILING, "allowed are 35000"),
    (BEHIND, behind, 0, ""),
    (BEHIND, lambda: behind(mode="ccu"), INVALID_ARGUMENT, 'commMode is "ccu"'),
    (BEHIND, lambda: behind(axes=[-2, -1]), INVALID_ARGUMENT, "allowed are null and [-1, -2]"),
    (BEHIND, lambda: behind(x1=h(0, H), out=h(0, N // RANKS)), INVALID_ARGUMENT, "is empty"),
    (BEHIND, lambda: behind(bias=h(N, dtype=F32)), INVALID_ARGUMENT, "expected float16"),
    (BEHIND, lambda: behind(x2=h(H + 1, N)), INVALID_ARGUMENT, "expected 16 to sum over"),
    (BEHIND, lambda: behind(x2=h(H, N + 1)), TILING, "[10, 9 / 2]"),
    (ROUNDED, rounded, 0, ""),
    (ROUNDED, lambda: rounded(columns=None), 161001, "x2Scale"),
    (ROUNDED, lambda: rounded(columns=h(N)), INVALID_ARGUMENT, ""),
    (ROUNDED, lambda: rounded(columns=h(N - 1, dtype=F32)), TILING, "expected 8"),
    (ROUNDED, lambda: rounded(rows=h(RANKS * H, dtype=F32)), INVALID_ARGUMENT, ""),
    (ROUNDED, lambda: rounded(rows=h(H)), TILING, "expected 32"),
    (ROUNDED, lambda: rounded(out=h(M // RANKS, N, dtype=BFLOAT)), TILING, "no kernel takes together"),
    (ROUNDED, lambda: rounded(x1=h(M, 12), x2=h(24, N, dtype=INT8)), TILING, "a multiple of 16"),
    (ROUNDED, lambda: rounded(comm=h(N)), INVALID_ARGUMENT, "commScaleOptional is given"),
    (INTEGERS, integers, 0, ""),
    (INTEGERS, lambda: integers(bias=None), 161001, "bias"),
    (INTEGERS, lambda: integers(bias=h(N, dtype=F32)), INVALID_ARGUMENT, "float32 beside bfloat16"),
    (INTEGERS, lambda: integers(mode=6), INVALID_ARGUMENT, "are 6 and 2"),
    (INTEGERS, lambda: integers(rows=h(4, dtype=F32)), INVALID_ARGUMENT, "x1Scale"),
]


@pytest.mark.parametrize(("operator", "make", "code", "words"), REFUSED)
def test_refused(name: str, operator: str, make: Callable[[], list[Any]], code: int, words: str) -> None:
    status, message = refusal(operator, *(name if one is ... else one for one in make()))
    assert status == code and words in message, message
