"""image/aclop_rotated.cpp against a fine grid of points."""

from __future__ import annotations

import math

import pytest
import torch
import torch_npu
from oracle import random
from torch import Tensor


def rectangles(count: int, seed: int) -> Tensor:
    """Centre, sizes, angle in degrees."""
    centre, size = random(count, 2, low=0, high=12, seed=seed), random(count, 2, low=2, high=9, seed=seed + 1)
    return torch.cat([centre, size, random(count, 1, low=-180, high=180, seed=seed + 2)], 1).float()


def shared(a: Tensor, b: Tensor, sign: int = 1) -> float:
    """The part of a fine grid over `a` that lies in `b`, times the area of `a`."""
    steps = (torch.arange(400, dtype=torch.float64) + 0.5) / 400 - 0.5
    x, y = torch.meshgrid(steps * float(a[2]), steps * float(a[3]), indexing="ij")
    t, u = (sign * math.radians(float(box[4])) for box in (a, b))
    px = float(a[0] - b[0]) + x * math.cos(t) - y * math.sin(t)
    py = float(a[1] - b[1]) + x * math.sin(t) + y * math.cos(t)
    inside = (px * math.cos(u) + py * math.sin(u)).abs() <= float(b[2]) / 2
    inside &= (py * math.cos(u) - px * math.sin(u)).abs() <= float(b[3]) / 2
    return float(inside.double().mean()) * float(a[2] * a[3])


def test_rotated_overlaps() -> None:
    a, b = rectangles(5, 0), rectangles(4, 9)
    common = torch.tensor([[shared(x, y) for y in b] for x in a], dtype=torch.float64)
    size = [(t[:, 2] * t[:, 3]).double() for t in (a, b)]
    actual = torch_npu.npu_rotated_overlaps(a[None].npu(), b[None].npu())[0].cpu()
    assert (actual - common).abs().max() < 0.2 and common.max() > 5  # the grid's precision
    iou = torch_npu.npu_rotated_iou(a[None].npu(), b[None].npu())[0].cpu()
    assert (iou - common / (size[0][:, None] + size[1] - common)).abs().max() < 0.01
    edges = [torch.cat([t[:, :2] - t[:, 2:4] / 2, t[:, :2] + t[:, 2:4] / 2, t[:, 4:]], 1) for t in (a, b)]
    again = torch_npu.npu_rotated_overlaps(edges[0][None].npu(), edges[1][None].npu(), True)[0].cpu()
    assert (again - actual).abs().max() < 1e-3
    one = torch_npu.npu_rotated_iou(a[None, :4].npu(), b[None].npu(), False, 0, False)[0].cpu()
    assert torch.equal(one, torch.diag(torch.diagonal(iou[:4])))
    same = torch_npu.npu_rotated_iou(a[None].npu(), a[None].npu())[0].cpu()
    assert (torch.diagonal(same) - 1).abs().max() < 1e-5
    flat = torch.tensor([[[5.0, 5, 4, 0, 0]]])  # within the second, without area
    assert torch_npu.npu_rotated_overlaps(flat.npu(), torch.tensor([[[5.0, 5, 9, 9, 0]]]).npu()).item() == 0
    straight = torch.tensor([[[2.0, 2, 4, 4, 0]]]), torch.tensor([[[3.0, 4, 4, 2, 90]]])
    assert abs(torch_npu.npu_rotated_overlaps(*(t.npu() for t in straight)).item() - 4) < 1e-5


@pytest.mark.parametrize("mode", [0, 1])
def test_rotated_nms(mode: int) -> None:
    """As many rows come back as stay. In mode 1 boxes are corners, and angles count the other way round."""
    box, scores = rectangles(12, 4), random(12, low=0, high=1).float()
    given = box
    if mode == 1:
        given = torch.cat([box[:, :2] - box[:, 2:4] / 2, box[:, :2] + box[:, 2:4] / 2, box[:, 4:]], 1)
    kept: list[int] = []
    for i in scores.argsort(descending=True).tolist():
        size = box[:, 2] * box[:, 3]
        common = [shared(box[i], box[k], -1 if mode else 1) for k in kept]
        if all(c / float(size[i] + size[k] - c) <= 0.2 for c, k in zip(common, kept, strict=True)):
            kept.append(i)
    index, count = torch_npu.npu_nms_rotated(given.npu(), scores.npu(), 0.2, 0, -1, mode)
    assert index.tolist() == kept and count.tolist() == [len(kept)] and 1 < len(kept) < 12
    wrong = given.clone()
    wrong[:, 2] = -100  # areas below 0 share nothing
    assert torch_npu.npu_nms_rotated(wrong.npu(), scores.npu(), 0.2, 0, -1, mode)[1].tolist() == [12]
    some, _ = torch_npu.npu_nms_rotated(given.npu(), scores.npu(), 0.2, 0.3, 2, mode)
    assert some.tolist() == [i for i in kept if scores[i] >= 0.3][:2]
