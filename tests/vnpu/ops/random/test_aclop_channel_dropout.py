"""random/aclop_channel_dropout.cpp: whole channels are dropped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran

I32, BOOL = torch.int32, torch.bool


@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("keep", [0.0, 0.25, 0.8, 1.0])
def test_whole_channels_are_dropped(rank: int, keep: float) -> None:
    x = drawn(40, 25, *[3] * (rank - 2)).abs() + 1
    y, mask = ran(f"CustDropout{rank - 2}D", [x], x.shape, (*x.shape, BOOL), keep_prob=keep)
    kept = mask.flatten(2)
    assert torch.equal(kept.amax(2), kept.amin(2))
    near(y, torch.where(mask != 0, x.double() / max(keep, 1e-9), 0.0))
    # 1000 channels: within 5 standard deviations.
    assert abs(float(kept.amax(2).mean()) - keep) <= 5 * (keep * (1 - keep) / 1000) ** 0.5
    other = ran(f"CustDropout{rank - 2}D", [x], x.shape, (*x.shape, BOOL), keep_prob=keep)[1]
    assert torch.equal(other, mask) == (keep in (0, 1))


def test_halves_are_divided_by_a_half() -> None:
    x = drawn(8, 8, 5, 5).half()
    y, mask = ran("CustDropout2D", [x], (*x.shape, torch.float16), (*x.shape, BOOL), keep_prob=0.7)
    assert torch.equal(y, (x.float() / torch.tensor(0.7).half().float()).half().double() * mask)


def test_integers_are_truncated() -> None:
    x = torch.full((8, 8, 2, 2), 7, dtype=I32)
    (y, mask) = ran("CustDropout2D", [x], (*x.shape, I32), (*x.shape, BOOL), keep_prob=0.4)
    assert torch.equal(y, mask * 17)


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustDropout2D": ([drawn(2, 3, 4)], [(2, 3, 4), (2, 3, 4, BOOL)], {"keep_prob": 0.5}, "expected 4 dimensions"),
    "CustDropout3D": (
        [drawn(2, 3, 4, 1, 1)],
        [(2, 3, 4, 1, 1), (2, 3, 4, 1, 1, BOOL)],
        {"keep_prob": 1.5},
        "keep_prob is 1.5",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
