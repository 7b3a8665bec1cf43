"""Matrix products fused with a collective, against products and sums in float64 over what all ranks have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT
from forked import python
from ranks import group, refusal, run_ranks

TILING = 561002  # ACLNN_ERR_INNER_TILING_ERROR
HALF, BFLOAT = torch.float16, torch.bfloat16
RANKS = 2


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    with group(RANKS) as made:
        yield made


def near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Two roundings: of each rank's part, and of the sum."""
    tolerance = 2e-3 if actual.dtype == HALF else 1.6e-2
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance * 4)


def drawn(*shape: int, dtype: torch.dtype = HALF) -> list[torch.Tensor]:
    """One for each rank."""
    return [(torch.rand(shape) - 0.5).to(dtype) for _ in range(RANKS)]


def on(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.to(f"npu:{rank}") for rank, tensor in enumerate(tensors)]


def empty(*shape: int, dtype: torch.dtype = HALF) -> list[torch.Tensor]:
    return [torch.full(shape, 7.0, dtype=dtype, device=f"npu:{rank}") for rank in range(RANKS)]


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5), (1, 1)])
def test_all_reduce(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    n = 4
    x1, x2 = drawn(*shape, dtype=dtype), drawn(shape[-1], n, dtype=dtype)
    bias, x3 = drawn(n, dtype=dtype), drawn(*shape[:-1], n, dtype=dtype)
    total = sum(a.double() @ b.double() + c.double() for a, b, c in zip(x1, x2, bias, strict=True))
    a, b, c, d = on(x1), on(x2), on(bias), on(x3)
    out = empty(*shape[:-1], n, dtype=dtype)
    run_ranks("aclnnMatmulAllReduce", [[a[r], b[r], c[r], name, "sum", 0, 1, out[r]] for r in range(RANKS)])
    for each in out:
        near(each, total)
        assert torch.equal(each.cpu(), out[0].cpu())
    for version, mode in (("V2", []), ("V3", [None]), ("V3", ["ai_cpu"])):
        run_ranks(
            f"aclnnMatmulAllReduce{version}",
            [[a[r], b[r], c[r], d[r], name, "sum", *mode, 0, 1, out[r]] for r in range(RANKS)],
        )
        for each in out:
            near(each, total + sum(one.double() for one in x3))
            each.zero_()


def test_all_reduce_of_a_transposed_weight_and_of_nothing_to_sum(name: str) -> None:
    x1, x2 = drawn(3, 5), drawn(4, 5)
    a, b, out = on(x1), on(x2), empty(3, 4)
    run_ranks("aclnnMatmulAllReduce", [[a[r], b[r].t(), None, name, "sum", 0, 1, out[r]] for r in range(RANKS)])
    near(out[1], sum(p.double() @ q.double().t() for p, q in zip(x1, x2, strict=True)))
    a, b = on(drawn(3, 0)), on(drawn(0, 4))
    run_ranks("aclnnMatmulAllReduce", [[a[r], b[r], None, name, "sum", 0, 1, out[r]] for r in range(RANKS)])
    assert not out[0].any() and not out[1].any()


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("gathers", [True, False])
def test_all_gather(name: str, dtype: torch.dtype, gathers: bool) -> None:
    x1, x2 = drawn(3, 256, dtype=dtype), drawn(256, 5, dtype=dtype)
    bias = drawn(5, dtype=dtype)
    rows = torch.cat(x1)
    a, b, c, out = on(x1), on(x2), on(bias), empty(6, 5, dtype=dtype)
    gathered = empty(6, 256, dtype=dtype) if gathers else empty(0, dtype=dtype)
    run_ranks("aclnnAllGatherMatmul", [[a[r], b[r], c[r], name, 0, 0, 1, out[r], gathered[r]] for r in range(RANKS)])
    for r in range(RANKS):
        near(out[r], rows.double() @ x2[r].double() + bias[r].double())
        if gathers:
            assert torch.equal(gathered[r].cpu(), rows)


def test_all_gather_of_no_columns_still_gathers(name: str) -> None:
    x1, x2 = drawn(3, 256), drawn(256, 0)
    a, b, out, gathered = on(x1), on(x2), empty(6, 0), empty(6, 256)
    run_ranks("aclnnAllGatherMatmul", [[a[r], b[r], None, name, 0, 0, 1, out[r], gathered[r]] for r in range(RANKS)])
    assert all(torch.equal(each.cpu(), torch.cat(x1)) for each in gathered)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
def test_reduce_scatter(name: str, dtype: torch.dtype) -> None:
    x1, x2 = drawn(6, 257, dtype=dtype), drawn(257, 5, dtype=dtype)
    total = sum(p.double() @ q.double() for p, q in zip(x1, x2, strict=True))
    assert isinstance(total, torch.Tensor)
    a, b, out = on(x1), on(x2), empty(3, 5, dtype=dtype)
    run_ranks("aclnnMatmulReduceScatter", [[a[r], b[r], None, name, "sum", 0, 1, out[r]] for r in range(RANKS)])
    for r in range(RANKS):
        near(out[r], total[3 * r : 3 * r + 3])


def h(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=HALF, device="npu:0")


# operator, its arguments but for the group, the code, words. `...` stands for the group.
Refused = tuple[str, Callable[[], list[Any]], int, str]
REFUSED: list[Refused] = [
    ("aclnnMatmulAllReduce", lambda: [h(3, 5), h(5, 4), None, ..., "sum", 0, 1, h(3, 4)], 0, ""),
    (
        "aclnnMatmulAllReduce",
        lambda: [h(3, 5), h(5, 4), None, ..., "max", 0, 1, h(3, 4)],
        INVALID_ARGUMENT,
        'reduceOp is "max"',
    ),
    (
        "aclnnMatmulAllReduce",
        lambda: [h(3, 5), h(5, 4), None, ..., "sum", 0, 0, h(3, 4)],
        INVALID_ARGUMENT,
        "streamMode is 0",
    ),
    ("aclnnMatmulAllReduce", lambda: [h(3, 5), h(5, 4), None, ..., "sum", 1, 1, h(3, 4)], TILING, "commTurn is 1"),
    (
        "aclnnMatmulAllReduce",
        lambda: [h(3, 5), h(6, 4), None, ..., "sum", 0, 1, h(3, 4)],
        INVALID_ARGUMENT,
        "expected 5 rows",
    ),
    ("aclnnMatmulAllReduce", lambda: [h(0, 5), h(5, 4), None, ..., "sum", 0, 1, h(0, 4)], TILING, "is empty"),
    (
        "aclnnMatmulAllReduce",
        lambda: [h(3, 5), h(5, 4), None, "nobody", "sum", 0, 1, h(3, 4)],
        TILING,
        '"nobody", which is no communicator on device 0',
    ),
    (
        "aclnnMatmulAllReduceV2",
        lambda: [h(3, 5), h(5, 4), None, h(3, 5), ..., "sum", 0, 1, h(3, 4)],
        INVALID_ARGUMENT,
        "x3 has shape [3, 5]",
    ),
    (
        "aclnnMatmulAllReduceV3",
        lambda: [h(3, 5), h(5, 4), None, None, ..., "sum", "ccu", 0, 1, h(3, 4)],
        INVALID_ARGUMENT,
        'commMode is "ccu"',
    ),
    ("aclnnAllGatherMatmul", lambda: [h(3, 256), h(256, 4), None, ..., 0, 0, 1, h(6, 4), h(0)], 0, ""),
    (
        "aclnnAllGatherMatmul",
        lambda: [h(3, 255), h(255, 4), None, ..., 0, 0, 1, h(6, 4), h(0)],
        INVALID_ARGUMENT,
        "allowed are 256 to 65534",
    ),
    (
        "aclnnAllGatherMatmul",
        lambda: [h(3, 256), h(256, 4), None, ..., 1, 0, 1, h(6, 4), h(0)],
        TILING,
        "gatherIndex is 1",
    ),
    (
        "aclnnAllGatherMatmul",
        lambda: [h(256, 3).t(), h(256, 4), None, ..., 0, 0, 1, h(6, 4), h(0)],
        INVALID_ARGUMENT,
        "transposed",
    ),
    ("aclnnMatmulReduceScatter", lambda: [h(4, 256), h(256, 4), None, ..., "sum", 0, 1, h(2, 4)], 0, ""),
    (
        "aclnnMatmulReduceScatter",
        lambda: [h(3, 256), h(256, 4), None, ..., "sum", 0, 1, h(2, 4)],
        INVALID_ARGUMENT,
        "multiple of 2 rows",
    ),
    (
        "aclnnMatmulReduceScatter",
        lambda: [h(4, 256), h(256, 4), None, ..., "min", 0, 1, h(2, 4)],
        TILING,
        'reduceOp is "min"',
    ),
]


@pytest.mark.parametrize(("operator", "make", "code", "words"), REFUSED)
def test_refused(name: str, operator: str, make: Callable[[], list[Any]], code: int, words: str) -> None:
    status, message = refusal(operator, *(name if one is ... else one for one in make()))
    assert status == code and words in message, message


def test_groups_that_no_card_has(name: str) -> None:
    """Three ranks: eight, four and two are what the links between the cards of a 910B allow."""
    with group(3) as three:
        status, message = refusal("aclnnMatmulAllReduce", h(3, 5), h(5, 4), None, three, "sum", 0, 1, h(3, 4))
    assert status == TILING and "3 ranks, allowed are 1, 2, 4, 8" in message, message
    del name


ABSENT = f"""
from torchport import vnpu
vnpu.activate(force=True)
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import ctypes
import torch, torch_npu
from aclnn import _message, planned
from ranks import group
def h(device, *shape):
    return torch.ones(shape, dtype=torch.float16, device=f"npu:{{device}}")
def launch(device, name, *arguments):
    with torch.npu.device(device):
        planned(name, *arguments)(torch.npu.current_stream().npu_stream)
def failure(device):
    with torch.npu.device(device):
        try:
            torch.npu.synchronize()
        except RuntimeError as error:
            return str(error) + _message()
    return "no failure"
"""


@pytest.mark.parametrize(
    ("program", "limit", "words"),
    [
        ("", 1, ("nothing came for 1 s (HCCL_EXEC_TIMEOUT)", "within aclnnMatmulAllReduce, failed on rank 0 of 2")),
        (
            "launch(1, 'aclnnAllGatherMatmul', h(1, 3, 256), h(1, 256, 4), None, name, 0, 0, 1, h(1, 6, 4), h(1, 0))",
            100_000,
            ("rank 1 called HcclAlltoAllV #1, this rank HcclAllReduce #1",),
        ),
    ],
)
def test_a_rank_that_does_something_else_is_named(program: str, limit: int, words: tuple[str, ...]) -> None:
    main = f"""
with group(2) as name:
    launch(0, 'aclnnMatmulAllReduce', h(0, 3, 5), h(0, 5, 4), None, name, "sum", 0, 1, h(0, 3, 4))
    {program}
    print(failure(0))
"""
    ended = python(ABSENT + main, HCCL_EXEC_TIMEOUT=str(limit))
    for sentence in words:
        assert sentence in ended.stdout + ended.stderr, ended.stdout + ended.stderr
