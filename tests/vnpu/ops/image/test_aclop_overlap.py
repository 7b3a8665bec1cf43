"""image/aclop_overlap.cpp through torch_npu's functions, with its gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch_npu
from oracle import compare, random
from torch import Tensor

HALVES = (torch.float32, torch.float16)


def by_centres(count: int, seed: int) -> Tensor:
    centres = random(2, count, low=4, high=9, seed=seed)
    return torch.cat([centres, random(2, count, low=0.5, high=5, seed=seed + 1)])


def corners(box: Tensor) -> tuple[Tensor, ...]:
    return box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2


def overlap(kind: str, box: Tensor, truth: Tensor, by_truth: bool = False) -> Tensor:
    ax, ay, aw, ah = corners(box)
    bx, by, bw, bh = corners(truth)
    common = (torch.minimum(aw, bw) - torch.maximum(ax, bx)).clamp(0) * (
        torch.minimum(ah, bh) - torch.maximum(ay, by)
    ).clamp(0)
    both = (aw - ax) * (ah - ay) + (bw - bx) * (bh - by) - common
    iou = common / ((bw - bx) * (bh - by) if by_truth else both)
    wide, high = torch.maximum(aw, bw) - torch.minimum(ax, bx), torch.maximum(ah, bh) - torch.minimum(ay, by)
    if kind == "giou":
        return iou - (wide * high - both) / (wide * high)
    near = iou - ((box[:2] - truth[:2]) ** 2).sum(0) / (wide**2 + high**2)
    if kind == "diou":
        return near
    shape = 4 / math.pi**2 * (torch.atan(truth[2] / truth[3]) - torch.atan(box[2] / box[3])) ** 2
    return near - shape * (shape / (1 - iou + shape)).detach()  # the weight is a constant


@pytest.mark.parametrize("kind", ["giou", "diou", "ciou"])
def test_overlaps_with_a_gradient(kind: str) -> None:
    box, truth = by_centres(19, 3), by_centres(19, 7)
    box[:, 0] = truth[:, 0] + 20  # far apart
    box[:, 1], truth[:, 1] = torch.tensor([[5, 6, 2, 3], [5.5, 6.5, 3, 4]])  # two edges are the same
    for dtype in HALVES:
        leaves = [t.to(dtype).npu().requires_grad_() for t in (box, truth)]
        more = (True,) if kind == "ciou" else ()
        actual = getattr(torch_npu, f"npu_{kind}")(*leaves, True, False, 0, *more)
        exact = [t.to(dtype).double().requires_grad_() for t in (box, truth)]
        expected = overlap(kind, *exact)
        shape = (19, 1) if kind == "giou" else (1, 19)
        compare(actual, expected.detach().view(shape), dtype, ulps=4, scale=1)
        seed = random(19, seed=5).to(dtype)
        actual.backward(seed.view(shape).npu())
        expected.backward(seed.double())
        for leaf, one in zip(leaves, exact, strict=True):
            compare(leaf.grad, one.grad, dtype, ulps=16, scale=1)


def test_overlaps_by_the_truth_and_by_corners() -> None:
    box, truth = by_centres(11, 3).float(), by_centres(11, 7).float()
    expected = overlap("diou", box.double(), truth.double(), by_truth=True).view(1, -1)
    compare(torch_npu.npu_diou(box.npu(), truth.npu(), True, False, 1), expected, torch.float32, ulps=8)
    edges = [torch.stack(corners(t)) for t in (box, truth)]
    expected = overlap("diou", box.double(), truth.double()).view(1, -1)
    compare(torch_npu.npu_diou(edges[0].npu(), edges[1].npu()), expected, torch.float32, ulps=16, scale=1)
    same = torch.tensor([[0.0], [0], [0], [0]]).npu()  # no size: no overlap, and no division by nothing
    assert torch_npu.npu_giou(same, same, True).item() == 0
