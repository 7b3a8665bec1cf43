"""image/aclop_nms.cpp against greedy loops."""

from __future__ import annotations

import pytest
import torch
import torch_npu
from aclop import ran
from oracle import random
from torch import Tensor

HALVES = (torch.float32, torch.float16)


def corners(count: int, seed: int) -> Tensor:
    low = torch.randint(0, 12, (count, 2), generator=torch.Generator().manual_seed(seed))
    return torch.cat([low, low + torch.randint(1, 9, low.shape, generator=torch.Generator().manual_seed(7))], 1).float()


def greedy(box: Tensor, order: list[int], limit: float, most: int) -> list[int]:
    kept: list[int] = []
    for i in order:
        overlaps = []
        for k in kept:
            side = (torch.minimum(box[i, 2:], box[k, 2:]) - torch.maximum(box[i, :2], box[k, :2])).clamp(0)
            size = [(box[j, 2:] - box[j, :2]).prod() for j in (i, k)]
            overlaps.append(float(side.prod() / (size[0] + size[1] - side.prod())))
        if all(one <= limit for one in overlaps) and len(kept) < most:
            kept.append(i)
    return kept


def test_nms_with_mask() -> None:
    box = torch.cat([corners(15, 1), random(15, 1, low=0, high=1).float()], 1)
    kept = greedy(box[:, :4], list(range(15)), 0.3, 15)  # in the order that they come in
    for dtype in (torch.float32, torch.float16):
        same, index, mask = torch_npu.npu_nms_with_mask(box.to(dtype).npu(), 0.3)
        assert torch.equal(same.cpu(), box.to(dtype)) and index.tolist() == list(range(15))
        assert mask.nonzero().flatten().tolist() == kept and 1 < len(kept) < 15


def test_nms_of_tensorflow() -> None:
    box, scores = corners(15, 2), random(15, low=0, high=1).float()
    box[::2] = box[::2][:, [2, 1, 0, 3]]  # any two opposite corners
    straight = torch.cat([torch.minimum(box[:, :2], box[:, 2:]), torch.maximum(box[:, :2], box[:, 2:])], 1)
    order = [i for i in scores.argsort(descending=True).tolist() if scores[i] > 0.25]
    for most in (3, 12):
        kept = greedy(straight, order, 0.3, most)
        limits = [torch.tensor(0.3).npu(), torch.tensor(0.25).npu()]
        index, count = torch_npu.npu_nms_v4(box.npu(), scores.npu(), most, *limits)
        assert count.item() == len(kept) and index[: len(kept)].tolist() == kept and index.shape == (most,)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_nms_of_batches_and_classes(turned: bool, own: bool) -> None:
    batch, count, classes, most = 2, 10, 3, 4
    box = torch.stack([corners(count, 10 + i) for i in range(batch * (classes if own else 1))])
    box = box.view(batch, -1, count, 4)  # [batch, classes or 1, boxes, 4]
    scores = random(batch, count, classes, low=0, high=1).float()
    given = box.mT if turned else box.transpose(1, 2)
    for dtype in HALVES:
        values = scores.to(dtype)
        boxes, best, which, number = (
            t.cpu()
            for t in torch_npu.npu_batch_nms(
                given.contiguous().to(dtype).npu(), values.npu(), 0.25, 0.3, 3, most, False, turned
            )
        )
        for n in range(batch):
            found = []
            for c in range(classes):
                column = values[n, :, c].float()
                order = [i for i in column.argsort(descending=True, stable=True).tolist() if column[i] > 0.25]
                each = box[n, c if own else 0]
                found += [(float(column[i]), c, each[i]) for i in greedy(each, order, 0.3, 3)]
            found.sort(key=lambda one: -one[0])
            found = found[:most]
            assert int(number[n]) == len(found)
            assert best[n, : len(found)].tolist() == [one[0] for one in found]
            assert which[n, : len(found)].tolist() == [one[1] for one in found]
            assert torch.equal(boxes[n, : len(found)].float(), torch.stack([one[2] for one in found]))
            assert not best[n, len(found) :].any()


def test_boxes_are_selected_by_truths_or_bytes() -> None:
    boxes = torch.tensor([[0.0, 0, 9, 9, 0.9], [1, 1, 10, 10, 0.8], [20, 20, 30, 30, 0.7]])
    for dtype in (torch.uint8, torch.bool):
        found = ran("NMSWithMask", [boxes], (3, 5), (3, torch.int32), (3, dtype), iou_threshold=0.5)
        assert found[2].tolist() == [1, 0, 1]
