"""loss/aclop_ctc.cpp: CTC's best path against loops, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch, near, ran

I32, I64 = torch.int32, torch.int64


def best_path(logits: torch.Tensor, lengths: list[int], merged: bool) -> tuple[list[list[int]], list[int], list[float]]:
    places, values, likelihoods = [], [], []
    for b, length in enumerate(lengths):
        classes = logits[:length, b].argmax(-1).tolist()
        kept = [
            c for t, c in enumerate(classes) if c != logits.shape[2] - 1 and not (merged and t and classes[t - 1] == c)
        ]
        places += [[b, i] for i in range(len(kept))]
        values += kept
        likelihoods.append(-float(logits[:length, b].max(-1).values.double().sum()))
    return places, values, likelihoods


@pytest.mark.parametrize("merged", [True, False])
def test_the_most_likely_classes(merged: bool) -> None:
    logits = drawn(9, 3, 4)
    logits[1, 0, 0] = 9  # no blank
    logits[2] = logits[1]  # repeats
    lengths = [9, 4, 0]
    places, values, likelihoods = best_path(logits, lengths, merged)
    found = ran(
        "CTCGreedyDecoder",
        [logits, torch.tensor(lengths, dtype=I32)],
        (27, 2, I64),
        (27, I64),
        (2, I64),
        (3, 1),
        merge_repeated=merged,
    )
    assert found[0][: len(places)].tolist() == places and found[1][: len(values)].tolist() == values
    assert found[2].tolist() == [3, max(i + 1 for _, i in places)]
    near(found[3].flatten(), torch.tensor(likelihoods, dtype=torch.float64))
    assert best_path(logits, lengths, not merged)[1] != values


# Operator: inputs, the output's sizes, attributes; words of the message.
UNFIT_CALLS = {
    "CTCLoss": (
        [drawn(4, 2, 3), torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, dtype=I32), torch.ones(2, dtype=I32)],
        (2,),
        {},
        "the places of the labels",
    )
}


@pytest.mark.parametrize("name", UNFIT_CALLS)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = UNFIT_CALLS[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


# Operator: inputs, outputs, attributes; words of the message.
UNFIT: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CTCGreedyDecoder": (
        [drawn(3, 2, 4), torch.ones(3, dtype=I32)],
        [(6, 2, I64), (6, I64), (2, I64), (2, 1)],
        {},
        "sequence_length is",
    ),
    "CTCGreedyDecoder 2": (
        [drawn(3, 2, 4), torch.ones(2, dtype=I32)],
        [(5, 2, I64), (6, I64), (2, I64), (2, 1)],
        {},
        "decoded_indices is",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
