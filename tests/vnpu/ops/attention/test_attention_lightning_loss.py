"""What the lightning indexer learns, against autograd of the divergence in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run

TILING = 561002
HALF, BFLOAT, F32 = torch.float16, torch.bfloat16, torch.float32
SCALE, HEADS, OWN, NEVER = 0.05, 32, 8, 2**31 - 1


class Lesson(NamedTuple):
    """Tensors of one sequence after another, [tokens, ...], as the layout TND has them."""

    query: torch.Tensor
    key: torch.Tensor
    query_index: torch.Tensor
    key_index: torch.Tensor
    weights: torch.Tensor
    query_rope: torch.Tensor
    key_rope: torch.Tensor


def drawn(rows: int, keys: int, groups: int, width: int, dtype: torch.dtype, weights: torch.dtype) -> Lesson:
    def r(*shape: int) -> torch.Tensor:
        return (torch.rand(shape) - 0.5).to(dtype)

    return Lesson(
        r(rows, HEADS, width),
        r(keys, groups, width),
        r(rows, OWN, 128),
        r(keys, 1, 128),
        (torch.rand(rows, OWN) - 0.3).to(weights),
        r(rows, HEADS, 64),
        r(keys, groups, 64),
    )


def ends(lengths: list[int]) -> list[int]:
    return torch.tensor(lengths).cumsum(0).tolist()


def seen(rows: int, keys: int, chosen: torch.Tensor | None) -> torch.Tensor:
    """Whether a query sees a key: up to its own place, counted from the end, and of those the chosen ones."""
    visible = torch.arange(keys) <= torch.arange(rows).unsqueeze(1) + keys - rows
    if chosen is None:
        return visible
    kept = torch.zeros_like(visible)
    for row in range(rows):
        kept[row, chosen[row, : int(visible[row].sum())].long()] = True
    return kept


class Expected(NamedTuple):
    grads: list[torch.Tensor]
    loss: float
    maximum: torch.Tensor  # [rows, heads]
    sum: torch.Tensor
    own_maximum: torch.Tensor  # [rows]
    own_sum: torch.Tensor


def expected(lesson: Lesson, visible: torch.Tensor, roped: bool) -> Expected:
    """Of one sequence. The target counts as given, as the indexer is trained apart."""
    query, key, query_index, key_index, weights, query_rope, key_rope = (one.double() for one in lesson)
    if roped:
        query, key = torch.cat((query, query_rope), -1), torch.cat((key, key_rope), -1)
    scores = torch.einsum("rhd,khd->hrk", query, key.expand(-1, HEADS, -1)) * SCALE
    scores = scores.masked_fill(~visible, -torch.inf)
    target = scores.softmax(-1).mean(0)
    leaves = [one.clone().requires_grad_() for one in (query_index, key_index, weights)]
    products = torch.einsum("rhd,kd->rhk", leaves[0], leaves[1][:, 0]).relu()
    relevance = (products * leaves[2].unsqueeze(-1)).sum(1).masked_fill(~visible, -torch.inf)
    logarithms = relevance.log_softmax(-1)
    loss = torch.where(visible, target * (target.clamp_min(1e-300).log() - logarithms), 0).sum()
    grads = torch.autograd.grad(loss, leaves)
    top, own = scores.amax(-1), relevance.detach().amax(-1)
    total = (scores - top.unsqueeze(-1)).exp().sum(-1)
    own_total = (relevance.detach() - own.unsqueeze(-1)).exp().sum(-1)
    return Expected(list(grads), loss.item(), top.t(), total.t(), own, own_total)


def sequences(lesson: Lesson, rows: list[int], keys: list[int]) -> list[Lesson]:
    parts = [tensor.split(rows if i in (0, 2, 4, 5) else keys) for i, tensor in enumerate(lesson)]
    return [Lesson(*(part[b] for part in parts)) for b in range(len(rows))]


def compare(results: list[torch.Tensor], loss: torch.Tensor, wanted: list[Expected]) -> None:
    for i, actual in enumerate(results):
        exact = torch.cat([one.grads[i] for one in wanted])
        step = {HALF: 1e-3, BFLOAT: 8e-3, F32: 1e-6}[actual.dtype]
        # The gradient of the products is rounded, too, before it is multiplied.
        rounding = 0 if actual.dtype == F32 else 2 * step * float(exact.abs().max())
        torch.testing.assert_close(actual.cpu().double().view(exact.shape), exact, rtol=2 * step, atol=rounding + 1e-6)
    assert loss.item() == pytest.approx(sum(one.loss for one in wanted), rel=1e-5)


def arranged(packed: bool, statistics: list[torch.Tensor], groups: int) -> torch.Tensor:
    """[rows, heads] of each sequence as [groups, tokens, heads of a group], or with the batch before."""
    each = [one.float().unflatten(1, (groups, -1)).transpose(0, 1) for one in statistics]
    return torch.cat(each, 1).npu() if packed else torch.stack(each).npu()


CASES = [
    ("TND", [3, 0, 5], [4, 2, 7], HALF, F32),
    ("TND", [4], [9], BFLOAT, BFLOAT),
    ("BSND", [3, 3], [5, 5], HALF, HALF),
]


@pytest.mark.parametrize(("layout", "rows", "keys", "dtype", "weights"), CASES)
@pytest.mark.parametrize("roped", [True, False])
def test_all_keys(
    layout: str, rows: list[int], keys: list[int], dtype: torch.dtype, weights: torch.dtype, roped: bool
) -> None:
    lesson = drawn(sum(rows), sum(keys), HEADS, 128, dtype, weights)
    wanted = [
        expected(one, seen(r, k, None), roped)
        for one, r, k in zip(sequences(lesson, rows, keys), rows, keys, strict=True)
    ]
    packed = layout == "TND"
    query, key, query_index, key_index, weight, query_rope, key_rope = (
        one.npu() if packed else one.unflatten(0, (len(rows), -1)).npu() for one in lesson
    )
    own = [
        torch.cat(each).float().unsqueeze(0).npu() if packed else torch.stack(each).float().unsqueeze(1).npu()
        for each in ([one.own_maximum for one in wanted], [one.own_sum for one in wanted])
    ]
    maximum, total = (
        arranged(packed, each, HEADS) for each in ([one.maximum for one in wanted], [one.sum for one in wanted])
    )
    results = [torch.full_like(one, 7) for one in (query_index, key_index, weight)]
    loss = torch.full((1,), 7.0, device="npu")
    lengths = [ends(rows), ends(keys)] if packed else [None, None]
    ropes = [query_rope, key_rope] if roped else [None, None]
    run(
        "aclnnDenseLightningIndexerGradKLLoss",
        query,
        key,
        query_index,
        key_index,
        weight,
        maximum,
        total,
        *own,
        *ropes,
        *lengths,
        SCALE,
        layout,
        3,
        NEVER,
        NEVER,
        *results,
        loss,
    )
    compare(results, loss, wanted)


@pytest.mark.parametrize(("layout", "rows", "keys", "dtype", "weights"), CASES)
def test_chosen_keys(layout: str, rows: list[int], keys: list[int], dtype: torch.dtype, weights: torch.dtype) -> None:
    lesson = drawn(sum(rows), sum(keys), 1, 512, dtype, weights)
    chosen = []
    for r, k in zip(rows, keys, strict=True):
        index = torch.full((r, 1, 1024), -1, dtype=torch.int32)
        for row in range(r):
            index[row, 0, : k - r + row + 1] = torch.randperm(k - r + row + 1)
        chosen.append(index)
    wanted = [
        expected(one, seen(r, k, index[:, 0]), True)
        for one, r, k, index in zip(sequences(lesson, rows, keys), rows, keys, chosen, strict=True)
    ]
    packed = layout == "TND"
    query, key, query_index, key_index, weight, query_rope, key_rope = (
        one.npu() if packed else one.unflatten(0, (len(rows), -1)).npu() for one in lesson
    )
    indices = torch.cat(chosen) if packed else torch.stack(chosen)
    maximum, total = (
        arranged(packed, each, 1) for each in ([one.maximum for one in wanted], [one.sum for one in wanted])
    )
    results = [torch.full_like(one, 7) for one in (query_index, key_index, weight)]
    loss = torch.full((1,), 7.0, device="npu")
    lengths = [ends(rows), ends(keys)] if packed else [None, None]
    run(
        "aclnnSparseLightningIndexerGradKLLoss",
        query,
        key,
        query_index,
        key_index,
        weight,
        indices.npu(),
        maximum,
        total,
        query_rope,
        key_rope,
        *lengths,
        SCALE,
        layout,
        3,
        NEVER,
        NEVER,
        False,
        *results,
        loss,
    )
    compare(results, loss, wanted)


def test_fewer_keys_than_a_query_sees() -> None:
    """The 1024 first ones that are named, of 1030."""
    lesson = drawn(1, 1030, 1, 512, HALF, HALF)
    index = torch.randperm(1030)[:1024].int().view(1, 1, 1024)
    wanted = expected(lesson, seen(1, 1030, index[:, 0]), True)
    query, key, query_index, key_index, weight, query_rope, key_rope = (one.npu() for one in lesson)
    maximum, total = arranged(True, [wanted.maximum], 1), arranged(True, [wanted.sum], 1)
    results = [torch.full_like(one, 7) for one in (query_index, key_index, weight)]
    loss = torch.full((1,), 7.0, device="npu")
    run(
        "aclnnSparseLightningIndexerGradKLLoss",
        query,
        key,
        query_index,
        key_index,
        weight,
        index.npu(),
        maximum,
        total,
        query_rope,
        key_rope,
        [1],
        [1030],
        SCALE,
        "TND",
        3,
        NEVER,
        NEVER,
        True,
        *results,
        loss,
    )
    compare(results, loss, [wanted])
    assert not results[1].cpu()[[place for place in range(1030) if place not in index.flatten().tolist()]].any()


def h(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="npu")


def said(name: str, **other: Any) -> tuple[int, str]:
    sparse = "Sparse" in name
    groups, width = (1, 512) if sparse else (HEADS, 128)
    given: dict[str, Any] = {
        "query": h(3, HEADS, width),
        "key": h(4, groups, width),
        "query_index": h(3, OWN, 128),
        "key_index": h(4, 1, 128),
        "weights": h(3, OWN),
        "indices": torch.zeros(3, 1, 1024, dtype=torch.int32, device="npu"),
        "maximum": h(groups, 3, HEADS // groups, dtype=F32),
        "sum": h(groups, 3, HEADS // groups, dtype=F32),
        "own_maximum": h(1, 3, dtype=F32),
        "own_sum": h(1, 3, dtype=F32),
        "query_rope": h(3, HEADS, 64),
        "key_rope": h(4, groups, 64),
        "rows": [3],
        "keys": [4],
        "layout": "TND",
        "mode": 3,
        "loss": h(1, dtype=F32),
    }
    given |= other
    names = ["query", "key", "query_index", "key_index", "weights"]
    names += ["indices", "maximum", "sum"] if sparse else ["maximum", "sum", "own_maximum", "own_sum"]
    names += ["query_rope", "key_rope", "rows", "keys"]
    rest = [SCALE, given["layout"], given["mode"], NEVER, NEVER, *([False] if sparse else [])]
    outs = [h(3, OWN, 128), h(4, 1, 128), h(3, OWN), given["loss"]]
    return first_phase(name, *(given[one] for one in names), *rest, *outs)


DENSE, SPARSE = "aclnnDenseLightningIndexerGradKLLoss", "aclnnSparseLightningIndexerGradKLLoss"


@pytest.mark.parametrize("name", [DENSE, SPARSE])
def test_refused(name: str) -> None:
    assert said(name) == (0, "")
    for other, code, words in (
        ({"query": h(3, 16, 512 if name == SPARSE else 128)}, TILING, "allowed are 32, 64 and 128 heads"),
        ({"query": h(3, HEADS, 64)}, TILING, "allowed are widths"),
        ({"key_index": h(4, 2, 128)}, TILING, "keyIndex"),
        ({"weights": h(3, 7)}, TILING, "weights"),
        ({"weights": h(3, OWN, dtype=BFLOAT)}, INVALID_ARGUMENT, "weights"),
        ({"maximum": h(1, 3, 3, dtype=F32)}, TILING, "softmaxMax"),
        ({"key_rope": None}, TILING, "come together"),
        ({"rows": [4]}, TILING, "running totals"),
        ({"rows": [3, 3]}, TILING, "running totals"),
        ({"layout": "BSND"}, TILING, "not laid out as BSND"),
        ({"layout": "BNSD"}, TILING, "allowed are TND and BSND"),
        ({"mode": 0}, TILING, "sparseMode is 0"),
        ({"sum": None}, 161001, "softmaxSum"),
        ({"loss": h(2, dtype=F32)}, TILING, "loss"),
    ):
        status, message = said(name, **other)
        assert status == code and words in message, (other.keys(), message)


def test_refused_beside() -> None:
    assert said(DENSE, query_rope=None, key_rope=None) == (0, "")
    for name, other, code, words in (
        (DENSE, {"own_sum": h(3, dtype=F32)}, TILING, "softmaxSumIndex"),
        (SPARSE, {"query_rope": None, "key_rope": None}, TILING, "queryRope is null"),
        (SPARSE, {"indices": torch.zeros(3, 1, 1000, dtype=torch.int32, device="npu")}, TILING, "multiples of 1024"),
    ):
        status, message = said(name, **other)  # type: ignore[arg-type]
        assert status == code and words in message, message
