"""Mixture of experts: gating, routing and its way back, each against plain loops or torch in float64."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, check, compare, random

EXPERTS = 5


def choose(tokens: int, k: int, seed: int = 0) -> torch.Tensor:
    """k different experts for each token, int32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(tokens, EXPERTS, generator=generator).argsort(1)[:, :k].contiguous().int()


def npu_empty(*sizes: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.full(sizes, 99, dtype=dtype, device="npu")


# --- gating


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("finished", [False, True])
def test_gating_by_softmax(dtype: torch.dtype, finished: bool) -> None:
    x = random(6, EXPERTS).to(dtype)
    done = torch.arange(6) % 3 == 0 if finished else None
    y, expert, row = torch_npu.npu_moe_gating_top_k_softmax(x.npu(), None if done is None else done.npu(), k=3)
    probability = torch.softmax(x.double(), -1)
    value, index = torch.sort(probability, dim=1, descending=True, stable=True)
    compare(y, value[:, :3], dtype, ulps=4)
    wanted = index[:, :3].int()
    if done is not None:
        wanted = wanted.masked_fill(done.unsqueeze(1), EXPERTS)
    assert torch.equal(expert.cpu(), wanted)
    assert torch.equal(row.cpu(), torch.arange(18, dtype=torch.int32).view(3, 6).t())


def test_gating_that_normalises_before_or_after_the_choice() -> None:
    x = random(6, EXPERTS).float()
    y, expert, every = (
        npu_empty(6, 2, dtype=torch.float32),
        npu_empty(6, 2),
        npu_empty(6, EXPERTS, dtype=torch.float32),
    )
    run("aclnnMoeGatingTopKSoftmaxV2", x.npu(), None, 2, 0, True, y, expert, every)
    probability = torch.softmax(x.double(), -1)
    compare(y, probability.topk(2).values, torch.float32, ulps=4)
    compare(every, probability, torch.float32, ulps=4)
    run("aclnnMoeGatingTopKSoftmaxV2", x.npu(), None, 2, 1, False, y, expert, None)
    compare(y, torch.softmax(x.double().topk(2).values, -1), torch.float32, ulps=4)
    assert torch.equal(expert.cpu().long(), x.topk(2).indices)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("mode", [0, 1])
def test_gating_by_groups(second: bool, norm: int, mode: int) -> None:
    x, bias = random(7, 12).float(), random(12, seed=1).float()
    y, expert, every = (npu_empty(7, 3, dtype=torch.float32), npu_empty(7, 3), npu_empty(7, 12, dtype=torch.float32))
    extra = (None, None) if second else ()
    run(
        "aclnnMoeGatingTopKV2" if second else "aclnnMoeGatingTopK",
        x.npu(),
        bias.npu(),
        *extra,
        3,
        2,
        4,
        mode,
        0,
        norm,
        True,
        1.5,
        1e-20,
        y,
        expert,
        every,
    )
    scores = torch.softmax(x.double(), -1) if norm == 0 else torch.sigmoid(x.double())
    compare(every, scores, torch.float32, ulps=4)
    for token in range(7):
        routed = scores[token] + bias.double()
        groups = routed.view(4, 3)
        strength = groups.amax(1) if mode == 0 else groups.topk(2).values.sum(1)
        allowed = torch.full((12,), -torch.inf, dtype=torch.float64)
        for g in strength.topk(2).indices.tolist():
            allowed[3 * g : 3 * g + 3] = routed[3 * g : 3 * g + 3]
        index = allowed.topk(3).indices
        value = scores[token][index]
        if norm == 1:
            value = value / value.sum()
        assert torch.equal(expert[token].cpu().long(), index)
        compare(y[token], value * 1.5, torch.float32, ulps=8)


@pytest.mark.parametrize("norm", [0, 1])
def test_gating_backward(norm: int) -> None:
    x = random(4, 6).requires_grad_()
    scores = torch.softmax(x, -1) if norm == 0 else torch.sigmoid(x)
    value, index = scores.topk(2)
    if norm == 1:
        value = value / (value.sum(-1, keepdim=True) + 1e-20)
    grad = random(4, 2, seed=3)
    (value * 2.5).backward(grad)
    out = npu_empty(4, 6, dtype=torch.float32)
    run(
        "aclnnMoeGatingTopKBackward",
        scores.detach().float().npu(),
        grad.float().npu(),
        index.int().npu(),
        0,
        norm,
        2.5,
        1e-20,
        out,
    )
    compare(out, x.grad, torch.float32, ulps=16)


# --- routing


def test_expert_tokens() -> None:
    experts = torch.tensor([0, 0, 2, 2, 2, 4, 5], dtype=torch.int32)
    out = torch_npu.npu_moe_compute_expert_tokens(experts.npu(), EXPERTS)
    assert out.cpu().tolist() == [2, 2, 5, 5, 6]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("active", [3, 100])
def test_init_routing(dtype: torch.dtype, active: int) -> None:
    x, expert = random(6, 4).to(dtype), choose(6, 2)
    row = torch.arange(12, dtype=torch.int32).view(2, 6).t().contiguous()
    rows, place, sorted_expert = torch_npu.npu_moe_init_routing(x.npu(), row.npu(), expert.npu(), active)
    order = sorted(range(12), key=lambda i: int(expert.view(-1)[i]))
    source = [int(row.view(-1)[i]) for i in order]
    assert torch.equal(rows.cpu(), x[[s % 6 for s in source[: min(active, 6) * 2]]])
    assert [source[int(p)] for p in place.cpu()] == list(range(12))
    assert torch.equal(sorted_expert.cpu(), expert.view(-1).sort().values)


def expanded(expert: torch.Tensor, capacity: int = 0) -> tuple[list[int], list[int]]:
    """The token of each expanded row (-1: empty) and the expanded row of each choice (-1: dropped)."""
    flat = expert.view(-1).tolist()
    tokens, place = [], [-1] * len(flat)
    for e in range(EXPERTS):
        mine = [i for i, chosen in enumerate(flat) if chosen == e]
        if capacity:
            mine = mine[:capacity]
        for i in mine:
            place[i] = len(tokens)
            tokens.append(i // expert.shape[1])
        if capacity:
            tokens += [-1] * (capacity - len(mine))
    return tokens, place


def rows_of(x: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    return torch.stack([x[t] if t >= 0 else torch.zeros_like(x[0]) for t in tokens])


@pytest.mark.parametrize("padded", [False, True])
def test_init_routing_v2(padded: bool) -> None:
    x, expert = random(6, 4).float(), choose(6, 2)
    tokens, place = expanded(expert, 2 if padded else 0)
    counts = torch.bincount(expert.view(-1).long(), minlength=EXPERTS).int()
    rows = npu_empty(*((EXPERTS, 2, 4) if padded else (12, 4)), dtype=torch.float32)
    where, count, before = npu_empty(12), npu_empty(EXPERTS), npu_empty(EXPERTS)
    for form in (1, 2):
        run(
            "aclnnMoeInitRoutingV2",
            x.npu(),
            expert.npu(),
            0,
            2,
            EXPERTS,
            int(padded),
            form,
            True,
            rows,
            where,
            count,
            before,
        )
        assert torch.equal(rows.cpu().view(-1, 4), rows_of(x, tokens))
        assert where.cpu().tolist() == place
        if padded:
            assert torch.equal(before.cpu(), counts)
        else:
            assert torch.equal(count.cpu(), counts.cumsum(0).int() if form == 1 else counts)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("scatter", [False, True])
def test_init_routing_of_torch_npu(padded: bool, scatter: bool) -> None:
    x, expert, scale = random(6, 4).float(), choose(6, 2), random(6, seed=4).float()
    rows, where, counts, row_scale = torch_npu.npu_moe_init_routing_v2(
        x.npu(),
        expert.npu(),
        scale=scale.npu(),
        active_num=12,
        expert_capacity=2,
        expert_num=EXPERTS,
        drop_pad_mode=int(padded),
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        quant_mode=-1,
        active_expert_range=[0, EXPERTS],
        row_idx_type=int(scatter and not padded),
    )
    tokens, place = expanded(expert, 2 if padded else 0)
    assert torch.equal(rows.cpu().reshape(-1, 4), rows_of(x, tokens))
    assert torch.equal(counts.cpu(), torch.bincount(expert.view(-1).long(), minlength=EXPERTS))
    assert torch.equal(row_scale.cpu().flatten(), rows_of(scale.unsqueeze(1), tokens).flatten())
    if scatter and not padded:
        assert torch.equal(where.cpu().long(), expert.view(-1).argsort(stable=True))
    else:
        assert where.cpu().tolist() == place


def test_init_routing_to_a_range_of_experts() -> None:
    x, expert = random(6, 4).float(), choose(6, 2)
    rows, where, counts, _ = torch_npu.npu_moe_init_routing_v2(
        x.npu(),
        expert.npu(),
        active_num=12,
        expert_capacity=-1,
        expert_num=EXPERTS,
        drop_pad_mode=0,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        quant_mode=-1,
        active_expert_range=[1, 3],
        row_idx_type=0,
    )
    flat = expert.view(-1).tolist()
    mine = sorted((i for i, e in enumerate(flat) if 1 <= e < 3), key=lambda i: flat[i])
    assert torch.equal(rows.cpu()[: len(mine)], x[[i // 2 for i in mine]])
    assert where.cpu().tolist() == [mine.index(i) if i in mine else -1 for i in range(12)]
    assert counts.cpu().tolist() == [flat.count(1), flat.count(2)]


def test_positions_of_routes_to_other_experts() -> None:
    """Behind those of the active experts: those of later experts by expert, then those of earlier ones as they come."""
    x, expert = random(6, 4).float(), choose(6, 2)
    _, where, pairs, _ = torch_npu.npu_moe_init_routing_v2(
        x.npu(),
        expert.npu(),
        active_num=12,
        expert_capacity=-1,
        expert_num=EXPERTS,
        drop_pad_mode=0,
        expert_tokens_num_type=2,
        expert_tokens_num_flag=True,
        quant_mode=-1,
        active_expert_range=[2, 3],
        row_idx_type=1,
    )
    flat = expert.view(-1).tolist()
    assert min(flat) < 2 and max(flat) >= 3
    assert where.cpu().tolist() == sorted(range(12), key=lambda i: flat[i] if flat[i] >= 2 else EXPERTS)
    with_tokens = [[2, flat.count(2)]]
    assert pairs.cpu().tolist() == with_tokens + [[0, 0]] * (EXPERTS - len(with_tokens))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mode", [0, 1])
def test_init_routing_that_quantises(version: int, mode: int) -> None:
    x, expert = random(6, 8).float(), choose(6, 2)
    tokens, place = expanded(expert)
    wide = rows_of(x.double(), tokens)
    rows, where = npu_empty(12, 8, dtype=torch.int8), npu_empty(12)
    by = npu_empty(12, dtype=torch.float32)
    smooth = random(EXPERTS, 8, low=0.5, seed=3).float()
    scale, offset = torch.tensor([20.0]), torch.tensor([3.0])
    first = (scale.npu(), offset.npu()) if mode == 0 else (smooth.npu(), None)
    if version == 2:
        run(
            "aclnnMoeInitRoutingQuantV2",
            x.npu(),
            expert.npu(),
            *first,
            0,
            0,
            EXPERTS,
            0,
            0,
            False,
            mode,
            rows,
            where,
            None,
            None,
            by,
        )
    else:
        run(
            "aclnnMoeInitRoutingV3",
            x.npu(),
            expert.npu(),
            *first,
            0,
            0,
            EXPERTS,
            0,
            1,
            False,
            mode,
            [0, EXPERTS],
            0,
            rows,
            where,
            None,
            by,
        )
    assert where.cpu().tolist() == place
    if mode == 0:
        expected = wide * 20 + 3
    else:
        wide = wide * smooth.double()[expert.view(-1).sort().values.long()]
        factor = wide.abs().amax(1) / 127
        compare(by, factor, torch.float32, ulps=8)
        expected = wide / factor.unsqueeze(1)
    off = (rows.cpu().double() - expected).abs()
    assert bool((off <= 0.501).all())


def test_routing_that_quantises_takes_any_expert_where_it_does_not_count() -> None:
    """Without counts expert_num is not looked at, as without quantisation."""
    x, expert = random(6, 8).float(), choose(6, 2) * 100
    order = expert.view(-1).argsort(stable=True)
    rows, where = npu_empty(12, 8, dtype=torch.int8), npu_empty(12)
    scale, offset = torch.tensor([20.0]).npu(), torch.tensor([3.0]).npu()
    run(
        "aclnnMoeInitRoutingQuantV2",
        x.npu(),
        expert.npu(),
        scale,
        offset,
        0,
        0,
        2,
        0,
        0,
        False,
        0,
        rows,
        where,
        None,
        None,
        None,
    )
    assert where.cpu().tolist() == order.argsort().tolist()
    off = (rows.cpu().double() - (x.double()[order // 2] * 20 + 3)).abs()
    assert bool((off <= 0.501).all())


@pytest.mark.parametrize("mode", [0, 1])
def test_padded_routing_that_quantises_has_rows_for_an_expert_that_nobody_chose(mode: int) -> None:
    x, expert = random(6, 8).float(), choose(6, 2).clamp(max=EXPERTS - 2)
    tokens, place = expanded(expert, capacity=3)
    rows, where = npu_empty(EXPERTS, 3, 8, dtype=torch.int8), npu_empty(12)
    before, by = npu_empty(EXPERTS), npu_empty(EXPERTS * 3, dtype=torch.float32)
    scale, offset = torch.tensor([20.0]), torch.tensor([0.0])
    first = (scale.npu(), offset.npu()) if mode == 0 else (None, None)
    run(
        "aclnnMoeInitRoutingQuantV2",
        x.npu(),
        expert.npu(),
        *first,
        0,
        3,
        EXPERTS,
        1,
        0,
        True,
        mode,
        rows,
        where,
        None,
        before,
        by,
    )
    assert where.cpu().tolist() == place
    assert before.cpu().tolist() == torch.bincount(expert.view(-1).long(), minlength=EXPERTS).tolist()
    wide = rows_of(x.double(), tokens)
    factor = torch.full((len(tokens),), 20.0) if mode == 0 else 127 / wide.abs().amax(1)
    expected = torch.where(wide == 0, 0.0, wide * factor.unsqueeze(1))
    assert bool(((rows.cpu().double().view(-1, 8) - expected).abs() <= 0.501).all())


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("version", [1, 2, 4])
def test_finalize_routing(mode: int, version: int) -> None:
    if version == 1 and mode != 0:
        mode = 0  # the first version has no modes
    tokens, k, width = 6, 2, 4
    expert = choose(tokens, k)
    rows = random(12, width).float()
    place = torch.randperm(12, generator=torch.Generator().manual_seed(5)).int()
    if mode in (1, 3):
        place[3] = -1
    first, second = random(tokens, width, seed=1).float(), random(tokens, width, seed=2).float()
    bias, scales = random(EXPERTS, width, seed=3).float(), random(tokens, k, seed=4).float()
    expected = (first + second).double()
    for t in range(tokens):
        for j in range(k):
            at = int(place[j * tokens + t] if mode < 2 else place[t * k + j])
            row = rows[at].double() if at >= 0 else torch.zeros(width)
            expected[t] += scales[t, j].double() * (row + bias[expert[t, j]].double())
    out = npu_empty(tokens, width, dtype=torch.float32)
    device = [t.npu() for t in (rows, place, first, second, bias, scales, expert)]
    shaped = device[0].view(4, 3, width) if mode in (1, 3) else device[0]
    if version == 1:
        run("aclnnMoeFinalizeRouting", shaped, *device[2:6], device[1], device[6], out)
    elif version == 2:
        run("aclnnMoeFinalizeRoutingV2", shaped, *device[1:], mode, out)
    else:
        out = torch_npu.npu_moe_finalize_routing(shaped, *device[2:6], device[1], device[6], mode)
    compare(out, expected, torch.float32, ulps=8)


# --- permutation


def permuted(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    order = indices.reshape(-1).argsort(stable=True)
    return x[order // (indices.numel() // x.shape[0])]


@pytest.mark.parametrize("k", [1, 2])
def test_permute_and_its_gradient(k: int) -> None:
    indices = choose(6, k)
    given = indices if k > 1 else indices.view(-1)
    check(
        lambda x: torch_npu.npu_moe_token_permute(x, given.npu())[0],
        random(6, 4),
        reference=lambda x: permuted(x, given),
        ulps=4,
    )
    _, sorted_indices = torch_npu.npu_moe_token_permute(random(6, 4).float().npu(), given.npu())
    order = given.reshape(-1).argsort(stable=True)
    assert torch.equal(sorted_indices.cpu().long(), order.argsort())


def test_permute_that_drops_tokens() -> None:
    indices = choose(6, 2)
    check(
        lambda x: torch_npu.npu_moe_token_permute(x, indices.npu(), num_out_tokens=9)[0],
        random(6, 4),
        reference=lambda x: permuted(x, indices)[:9],
        dtypes=FLOATS[:1],
        ulps=4,
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_unpermute_and_its_gradient(weighted: bool) -> None:
    k = 2 if weighted else 1
    where = choose(6, k).reshape(-1).argsort(stable=True).argsort().int()

    def reference(x: torch.Tensor, *probs: torch.Tensor) -> torch.Tensor:
        rows = x[where.long()].view(6, k, -1)
        return (rows * probs[0].unsqueeze(-1)).sum(1) if probs else rows.sum(1)

    check(
        lambda x, *probs: torch_npu.npu_moe_token_unpermute(x, where.npu(), probs=probs[0] if probs else None),
        random(6 * k, 4),
        *([random(6, k, low=0, seed=1)] if weighted else []),
        reference=reference,
        ulps=4,
    )


def test_unpermute_of_no_rows_is_zero() -> None:
    """Every token has been dropped."""
    where, out = torch.arange(4, dtype=torch.int32, device="npu"), npu_empty(4, 3, dtype=torch.float32)
    run("aclnnMoeTokenUnpermute", torch.zeros(0, 3, device="npu"), where, None, False, None, out)
    assert torch.equal(out.cpu(), torch.zeros(4, 3))


def test_unpermute_of_nothing() -> None:
    where, out = npu_empty(0), npu_empty(0, 3, dtype=torch.float32)
    run("aclnnMoeTokenUnpermute", torch.zeros(0, 3, device="npu"), where, None, False, None, out)
    run("aclnnMoeTokenUnpermuteGrad", None, out, where, None, False, None, out, None)


def routing_map(tokens: int, k: int) -> torch.Tensor:
    return torch.zeros(tokens, EXPERTS).scatter_(1, choose(tokens, k).long(), 1).bool()


@pytest.mark.parametrize("padded", [False, True])
def test_permute_by_map_and_its_gradient(padded: bool) -> None:
    routes = routing_map(6, 2)
    rows = EXPERTS * 2 if padded else 12

    def reference(x: torch.Tensor, probs: torch.Tensor) -> list[torch.Tensor]:
        if padded:
            token = routes.t().int().argsort(dim=1, descending=True, stable=True)[:, :2].reshape(-1)
            expert = torch.arange(EXPERTS).repeat_interleave(2)
        else:
            expert, token = routes.t().nonzero(as_tuple=True)
        return [x[token], probs[token, expert]]

    check(
        lambda x, probs: torch_npu.npu_moe_token_permute_with_routing_map(
            x, routes.npu(), probs=probs, num_out_tokens=rows, drop_and_pad=padded
        )[:2],
        random(6, 4),
        random(6, EXPERTS, low=0, seed=1),
        reference=reference,
        dtypes=FLOATS[:1],
        ulps=4,
    )


@pytest.mark.parametrize("padded", [False, True])
def test_unpermute_by_map_and_its_gradient(padded: bool) -> None:
    routes = routing_map(6, 2)
    if padded:
        where = routes.t().int().argsort(dim=1, descending=True, stable=True)[:, :2].reshape(-1).int()
    else:
        where = routes.t().nonzero()[:, 1].argsort(stable=True).int()

    def reference(x: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        if padded:
            weight = probs[where.long(), torch.arange(EXPERTS).repeat_interleave(2)]
            return torch.zeros(6, 4, dtype=x.dtype).index_add(0, where.long(), x * weight.unsqueeze(1))
        weight = probs.masked_select(routes).view(6, 2, 1)
        return (x[where.long()].view(6, 2, -1) * weight).sum(1)

    check(
        lambda x, probs: torch_npu.npu_moe_token_unpermute_with_routing_map(
            x, where.npu(), [6, 4], probs=probs, routing_map=routes.npu(), drop_and_pad=padded
        ),
        random(EXPERTS * 2 if padded else 12, 4),
        random(6, EXPERTS, low=0, seed=1),
        reference=reference,
        dtypes=FLOATS[:1],
        ulps=8,
    )


def test_refusals() -> None:
    x = torch.ones(4, 6, device="npu")
    y, expert, wide = npu_empty(4, 2, dtype=torch.float32), npu_empty(4, 2), npu_empty(4, 7)
    cases: list[tuple[str, tuple[Any, ...], str]] = [
        ("aclnnMoeGatingTopKSoftmax", (x, None, 7, y, expert, expert), "parameter k is 7, allowed is 1 to 6"),
        ("aclnnMoeGatingTopK", (x, None, 2, 1, 4, 0, 0, 0, False, 1.0, 0.0, y, expert, None), "groupCount is 4"),
        ("aclnnMoeComputeExpertTokens", (expert.view(-1), 3, expert), "parameter out"),
        ("aclnnMoeTokenPermute", (x, wide[:3], 0, False, x, expert), "expected a row for each of 4 tokens"),
        ("aclnnMoeInitRoutingV2", (x, expert, 0, 0, 5, 1, 0, False, x, expert, None, None), "expertCapacity is 0"),
        (
            "aclnnMoeInitRoutingV2",
            (x, expert, 0, 0, 0, 0, 1, False, x, expert, None, None),
            "expertNum is 0, expected > 0 where tokens are counted",
        ),
    ]
    for name, arguments, words in cases:
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
