"""image/aclop_boxes.cpp, most of it through torch_npu's functions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu
from aclop import ran
from oracle import compare, random
from torch import Tensor

HALVES = (torch.float32, torch.float16)


@pytest.mark.parametrize("mode", [0, 1])
def test_iou_has_its_epsilon_in_the_areas(mode: int) -> None:
    generator = torch.Generator().manual_seed(0)
    low = [torch.randint(0, 8, (n, 2), generator=generator) for n in (5, 7)]
    box, truth = (torch.cat([t, t + torch.randint(1, 7, t.shape, generator=generator)], 1).double() for t in low)
    for dtype in HALVES:
        for function in (torch_npu.npu_iou, torch_npu.npu_ptiou):
            actual = function(box.to(dtype).npu(), truth.to(dtype).npu(), mode)
            expected = torch.zeros(7, 5, dtype=torch.float64)
            for i, b in enumerate(truth):
                for j, a in enumerate(box):
                    sides = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(0)
                    areas = [(t[2:] - t[:2] + 0.01).prod() for t in (a, b)]
                    expected[i, j] = sides.prod() / (areas[1] if mode else sum(areas) - sides.prod())
            # torch_npu computes in float16 whatever it is given, and hardware rounds every step to it.
            compare(actual.half(), expected, torch.float16, ulps=4, scale=1)


def test_iou_has_the_values_of_hardware() -> None:
    """torch_npu's own tests have them from an Ascend910B, to four digits."""
    box = torch.tensor([[0, 0, 10, 10], [10, 10, 20, 20], [32, 32, 38, 42.0]]).npu()
    truth = torch.tensor([[0, 0, 10, 20], [0, 10, 10, 10], [10, 10, 20, 20.0]]).npu()
    for mode, values in ((0, (0.4985, 0.9961)), (1, (0.4990, 0.9980))):
        actual = torch_npu.npu_iou(box, truth, mode).cpu()
        assert [round(float(actual[i, j]), 4) for i, j in ((0, 0), (2, 1))] == list(values)
    box, truth = torch.tensor([[18, 45, 80, 130], [38, 85, 70, 230.0]]), torch.tensor([[10, 55, 85, 160.0]])
    actual = torch_npu.npu_ptiou(box.npu(), truth.npu()).cpu()
    assert [round(value, 4) for value in actual.flatten().tolist()] == [0.5474, 0.2373]


def test_bounding_boxes() -> None:
    low = random(9, 2, low=0, high=30).round()
    anchors = torch.cat([low, low + random(9, 2, low=1, high=20).round()], 1)
    truth = anchors + random(9, 4, low=-1, high=1, seed=3).round() / 2
    truth[0, 2] = truth[0, 0] - 5  # a width below 0 has no logarithm
    means, stds = (0.125, 0.25, -0.5, 0.0), (0.5, 0.25, 0.125, 1.0)

    def centred(t: Tensor) -> tuple[Tensor, ...]:
        w, h = t[:, 2] - t[:, 0] + 1, t[:, 3] - t[:, 1] + 1
        return (t[:, 0] + t[:, 2]) / 2, (t[:, 1] + t[:, 3]) / 2, w, h

    for dtype in HALVES:
        a, t = anchors.to(dtype), truth.to(dtype)
        (ax, ay, aw, ah), (tx, ty, tw, th) = centred(a.double()), centred(t.double())
        raw = torch.stack([(tx - ax) / aw, (ty - ay) / ah, (tw / aw).log(), (th / ah).log()], 1)
        expected = (raw - torch.tensor(means)) / torch.tensor(stds)
        actual = torch_npu.npu_bounding_box_encode(a.npu(), t.npu(), *means, *stds)
        compare(actual.half(), expected, torch.float16, ulps=4, scale=4)  # hardware rounds every step to it
        assert bool(actual[0, 2].isnan())
        deltas = random(9, 4, seed=9).to(dtype)
        d = deltas.double() * torch.tensor(stds) + torch.tensor(means)
        limit = abs(math.log(0.5))
        x, y = ax + aw * d[:, 0], ay + ah * d[:, 1]
        w, h = ((aw * d[:, 2].clamp(-limit, limit).exp() - 1) / 2, (ah * d[:, 3].clamp(-limit, limit).exp() - 1) / 2)
        edges = [(x - w).clamp(0, 39), (y - h).clamp(0, 29), (x + w).clamp(0, 39), (y + h).clamp(0, 29)]
        actual = torch_npu.npu_bounding_box_decode(a.npu(), deltas.npu(), *means, *stds, (30, 40), 0.5)
        compare(actual, torch.stack(edges, 1), dtype, scale=40)


def test_bounding_boxes_have_the_values_of_hardware() -> None:
    """op-plugin's own test has them from an Ascend910B, to four digits."""
    a, t = torch.tensor([[1, 2, 3, 4], [3, 4, 5, 6.0]]), torch.tensor([[5, 6, 7, 8], [7, 8, 9, 6.0]])
    for dtype in HALVES:
        values = [0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2]
        actual = torch_npu.npu_bounding_box_encode(a.to(dtype).npu(), t.to(dtype).npu(), *values).cpu()
        assert [round(value, 4) for value in actual[0].tolist()] == [13.3281, 13.3281, 0, 0]
        assert [round(value, 4) for value in actual[1, :3].tolist()] == [13.3281, 6.6641, 0]
        assert bool(actual[1, 3].isnan())


def test_yolo_boxes() -> None:
    low = random(8, 2, low=0, high=30)
    a = torch.cat([low, low + 4], 1).float()
    t = (a + random(8, 4, low=-3, high=3, seed=2)).float()
    stride = torch.tensor([2, 4, 8, 16] * 2, dtype=torch.int32)
    centre = [(b[:, :2] + b[:, 2:]).double() / 2 for b in (a, t)]
    size = [(b[:, 2:] - b[:, :2]).double() for b in (a, t)]
    place = ((centre[1] - centre[0]) / stride[:, None] + 0.5).clamp(1e-6, 1 - 1e-6)
    expected = torch.cat([place, (size[1] / size[0]).clamp_min(1e-6).log()], 1)
    for fast in (False, True):
        actual = torch_npu.npu_yolo_boxes_encode(a.npu(), t.npu(), stride.npu(), fast)
        compare(actual, expected, torch.float32, ulps=16, scale=2)


def test_rotated_boxes() -> None:
    """[batch, 5, boxes] with an angle in degrees, whose tangent is what differs."""
    low, angle = random(2, 2, 6, low=0, high=30), random(2, 1, 6, low=-60, high=60)
    anchors = torch.cat([low, low + random(2, 2, 6, low=1, high=20, seed=1), angle], 1)
    low = random(2, 2, 6, low=0, high=30, seed=8)
    truth = torch.cat([low, low + random(2, 2, 6, low=1, high=20, seed=3), angle.flip(2)], 1)
    weight = torch.tensor([1.0, 2.0, 0.5, 4.0, 1.0])

    def parts(t: Tensor) -> list[Tensor]:
        return [(t[:, 0] + t[:, 2]) / 2, (t[:, 1] + t[:, 3]) / 2, t[:, 2] - t[:, 0], t[:, 3] - t[:, 1]]

    for dtype in HALVES:
        a, t = anchors.to(dtype), truth.to(dtype)
        (ax, ay, aw, ah), (tx, ty, tw, th) = parts(a.double()), parts(t.double())
        turn = [torch.tan(b[:, 4].double() * math.pi / 180) for b in (a, t)]
        raw = [(tx - ax) / aw, (ty - ay) / ah, (tw / aw).log(), (th / ah).log(), turn[1] - turn[0]]
        expected = torch.stack(raw, 1) * weight[:, None]
        actual = torch_npu.npu_rotated_box_encode(a.npu(), t.npu(), weight.to(dtype).npu())
        compare(actual, expected, dtype, ulps=4, scale=4)
        back = torch_npu.npu_rotated_box_decode(a.npu(), actual, weight.to(dtype).npu())
        compare(back, t.double(), dtype, ulps=64, scale=30)


def test_cells_that_answer() -> None:
    box = random(20, 4, low=0, high=70).float()
    box[0] = 100  # in no cell
    expected = torch.zeros(8, 8, 3, dtype=torch.uint8)
    for a, b, c, d in box[1:].tolist():
        row, column = int((b + d) / 2 // 8), int((a + c) / 2 // 8)
        if row * 8 + column < 64:
            expected.view(64, 3)[row * 8 + column] = 1
    for dtype in HALVES:
        actual = torch_npu.npu_anchor_response_flags(box.to(dtype).npu(), [8, 8], [8, 8], 3)
        if dtype == torch.float32:
            assert torch.equal(actual.cpu(), expected.flatten())
        assert actual.dtype == torch.uint8 and actual.shape == (192,)


@pytest.mark.parametrize("all_of_them", [True, False])
def test_boxes_that_get_a_truth(all_of_them: bool) -> None:
    overlaps = random(3, 12, low=0, high=1).float()
    overlaps[1, 5] = overlaps[1, 2] = overlaps[1].max()
    assigned, answers = torch.full((12,), -1.0), torch.tensor([1, 1, 0] * 4, dtype=torch.uint8)
    (most, which), (best, where) = overlaps.max(0), overlaps.max(1)
    arguments: list[Any] = [assigned, overlaps, answers, most, which.int(), best, where.int()]
    actual = torch_npu.npu_grid_assign_positive(*(t.npu() for t in arguments), 3, 0.75, 0.5, all_of_them).cpu()
    expected = assigned.clone()
    for i in range(12):
        if answers[i] and most[i] >= 0.75:
            expected[i] = which[i] + 1
    for k in range(3):
        for i in range(12):
            chosen = overlaps[k, i] == best[k] if all_of_them else i == where[k]
            if best[k] > 0.5 and chosen and answers[i]:
                expected[i] = k + 1
    assert torch.equal(actual, expected)


def test_boxes_in_a_picture() -> None:
    """Height 2 and width 1, three times as large: the last pixel is at 5 and 2. As MindSpore's CPU has it."""
    rows = [[0, 0, 2, 5], [0, 0, 2.1, 5], [0, 0, 2, 5.1], [-0.1, 0, 1, 1], [0, -1, 1, 1], [3, 3, 1, 1]]
    (found,) = ran("CheckValid", [torch.tensor(rows), torch.tensor([2.0, 1.0, 3.0])], (6, torch.bool))
    assert found.tolist() == [True, False, False, False, False, True]
