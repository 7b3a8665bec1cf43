"""The next token of each row in one kernel (ops-nn: aclnnTopKTopPSampleV2.md)."""

import pytest
import torch
import torch_npu
from aclnn import first_phase, run
from oracle import FLOATS, random

TILING_REFUSED = 561002


def left(logits: torch.Tensor, k: int, p: float, min_p: float, from_logits: bool) -> list[tuple[int, float]]:
    """The tokens of a row that are left, the likeliest first, with their probabilities."""
    order = sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))
    if 1 <= k <= len(logits):
        order = order[:k]
    value = logits.double()[order]
    probability = torch.softmax(value, 0) if from_logits else value
    kept = list(zip(order, probability.tolist(), strict=True))
    if p < 1:
        sums = [sum(each for _, each in kept[:i]) for i in range(len(kept))]
        kept = [each for each, before in zip(kept, sums, strict=True) if before < p] if p > 0 else [(kept[0][0], 1.0)]
    if min_p >= 1:
        return kept[:1]
    return [each for each in kept if min_p <= 0 or each[1] >= kept[0][1] * min_p]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_next_token(dtype: torch.dtype, from_logits: bool, sampled: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    rows, words = 9, 24
    logits = torch.stack([torch.randperm(words, generator=generator) for _ in range(rows)]).to(dtype) / 4
    if not from_logits:
        logits = (logits + 1) / 512
    k = torch.tensor([5, 0, 3, 24, 7, 0, 0, 2000, 12], dtype=torch.int32)
    p = torch.tensor([0.75, 0.75, 1, 0.5, 0, 1, 1, 0.25, 0.5]).to(dtype)
    q, min_p = (
        random(rows, words, low=0.2, high=2).float(),
        torch.tensor([0, 0, 0.5, 0, 0, 0.25, 1, 0, 0.5]).to(dtype),
    )
    found, kept = torch_npu.npu_top_k_top_p_sample(
        logits.npu(),
        k.npu(),
        p.npu(),
        q=q.npu() if sampled else None,
        min_ps=min_p.npu(),
        eps=1e-8,
        is_need_logits=True,
        top_k_guess=32,
        ks_max=1024,
        input_is_logits=from_logits,
        post_sample="qSample" if sampled else "None",
    )
    for row in range(rows):
        tokens = left(logits[row], int(k[row]), float(p[row]), float(min_p[row]), from_logits)
        weights = [each / float(q[row, i]) if sampled else each for i, (_, each) in enumerate(tokens)]
        if not (1 <= int(k[row]) <= words) and float(p[row]) >= 1 and float(min_p[row]) <= 0:
            assert not sampled or row == 5
        else:
            assert int(found[row]) == tokens[max(range(len(weights)), key=weights.__getitem__)][0]
        expected = torch.full((words,), -torch.inf if from_logits else 0.0)
        for token, _ in tokens:
            expected[token] = float(logits[row, token])
        assert torch.equal(kept[row].cpu(), expected)


def test_the_first_version_draws_by_q() -> None:
    """q belongs to the tokens as they are sorted."""
    logits, q = torch.tensor([[1.0, 3.0, 2.0, 0.0]]).half(), torch.tensor([[100.0, 0.01, 1.0, 1.0]])
    k, p = torch.tensor([3], dtype=torch.int32), torch.tensor([0.9]).half()
    for drawn, token in ((q.npu(), 2), (None, 1)):
        chosen, kept = torch.zeros(1, dtype=torch.int64).npu(), torch.zeros(1, 4).npu()
        run("aclnnTopKTopPSample", logits.npu(), k.npu(), p.npu(), drawn, 1e-8, False, 32, chosen, kept)
        assert chosen.tolist() == [token]


def test_without_any_filter_nothing_is_sorted() -> None:
    """q then belongs to the tokens as they stand."""
    logits, q = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[0.01, 1.0, 1.0]])
    k, p = torch.zeros(1, dtype=torch.int32), torch.ones(1)
    found = torch_npu.npu_top_k_top_p_sample(logits.npu(), k.npu(), p.npu(), q=q.npu())[0]
    assert found.cpu().tolist() == [0]


def test_all_that_is_left() -> None:
    logits = torch.tensor([[0.0, 4.0, 1.0, 3.0]])
    order, sorted_, chosen = (
        torch.full((1, 4), 9).npu(),
        torch.full((1, 4), 9.0).npu(),
        torch.zeros(1, 1).long().npu(),
    )
    run(
        "aclnnTopKTopPSampleV2",
        logits.npu(),
        torch.tensor([3], dtype=torch.int32).npu(),
        torch.ones(1).npu(),
        None,
        None,
        1e-8,
        False,
        32,
        1024,
        True,
        True,
        chosen,
        None,
        order,
        sorted_,
    )
    assert order.cpu().tolist() == [[1, 3, 2, 0]]
    expected = torch.softmax(torch.tensor([4.0, 3.0, 1.0]), 0)
    torch.testing.assert_close(sorted_.cpu()[0], torch.cat([expected, torch.zeros(1)]))
    assert (
        int(
            torch_npu.npu_top_k_top_p_sample(
                logits.npu(), torch.tensor([1], dtype=torch.int32).npu(), torch.ones(1).npu(), post_sample="multiNomial"
            )[0]
        )
        == 1
    )


def test_the_first_version() -> None:
    logits = torch.tensor([[0.5, 2.0, 1.0], [3.0, 0.0, 1.0]]).half()
    chosen, kept = torch.zeros(2, dtype=torch.int64).npu(), torch.empty(2, 3).npu()
    k, p = torch.tensor([2, 0], dtype=torch.int32), torch.tensor([1.0, 0.5]).half()
    run("aclnnTopKTopPSample", logits.npu(), k.npu(), p.npu(), None, 1e-8, True, 32, chosen, kept)
    assert chosen.cpu().tolist() == [1, 0]
    none = -torch.inf
    assert kept.cpu().tolist() == [[none, 2.0, 1.0], [3.0, none, none]]


def test_what_has_no_plan_is_refused() -> None:
    def said(k: int, most: int, dtype: torch.dtype) -> int:
        return first_phase(
            "aclnnTopKTopPSampleV2",
            torch.ones(2, 4).npu(),
            torch.ones(k, dtype=torch.int32).npu(),
            torch.ones(2, dtype=dtype).npu(),
            None,
            None,
            1e-8,
            False,
            32,
            most,
            True,
            False,
            torch.zeros(2, dtype=torch.int64).npu(),
            None,
            None,
            None,
        )[0]

    assert said(2, 1024, torch.float32) == 0
    assert said(3, 1024, torch.float32) == said(2, 2000, torch.float32) == said(2, 8, torch.float16) == TILING_REFUSED
