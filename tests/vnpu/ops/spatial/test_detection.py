"""Overlap of boxes."""

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, compare


def boxes(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 20, (count, 2), generator=generator)
    return torch.cat([corner, corner + torch.randint(1, 12, (count, 2), generator=generator)], 1)


def overlap(a: list[float], b: list[float], mode: str, eps: float) -> float:
    """Each side is longer by eps, that of what they share too."""
    wide = max(min(a[2], b[2]) + eps - max(a[0], b[0]), 0)
    high = max(min(a[3], b[3]) + eps - max(a[1], b[1]), 0)
    area = [(x[2] - x[0] + eps) * (x[3] - x[1] + eps) for x in (a, b)]
    return wide * high / (sum(area) - wide * high if mode == "iou" else area[1])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_overlap(dtype: torch.dtype, mode: str) -> None:
    """Rows are the truth, columns the boxes. torch_npu takes a legacy path on this chip."""
    predicted, truth = boxes(5, 0), boxes(7, 1)
    out = torch.empty(7, 5, dtype=dtype, device="npu")
    run("aclnnIou", predicted.to(dtype).npu(), truth.to(dtype).npu(), mode, 0.5, False, out)
    expected = [[overlap(a, b, mode, 0.5) for a in predicted.tolist()] for b in truth.tolist()]
    compare(out, torch.tensor(expected, dtype=torch.float64), dtype)
    pairs = torch.empty(5, dtype=dtype, device="npu")
    run("aclnnIou", predicted.to(dtype).npu(), truth[:5].to(dtype).npu(), mode, 0.5, True, pairs)
    expected = [overlap(a, b, mode, 0.5) for a, b in zip(predicted.tolist(), truth.tolist(), strict=False)]
    compare(pairs, torch.tensor(expected, dtype=torch.float64), dtype)


def test_refusals() -> None:
    x, out = torch.ones(2, 4, device="npu"), torch.ones(2, 2, device="npu")
    for first, mode, words in ((x[:, :3], "iou", "expected [2, 4]"), (x, "giou", 'mode is "giou"')):
        status, message = first_phase("aclnnIou", first, x, mode, 0.0, False, out)
        assert status == INVALID_ARGUMENT and words in message, message
