"""image/aclop_rotated.cpp, suppression.cpp, position_sensitive.cpp and deformable.cpp through torch_npu's functions."""

from __future__ import annotations

import math

import pytest
import torch
import torch_npu
from aclop import drawn, ran
from oracle import compare, random
from torch import Tensor
from torch.nn import functional

HALVES = (torch.float32, torch.float16)


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


def corners(count: int, seed: int) -> Tensor:
    low = torch.randint(0, 12, (count, 2), generator=torch.Generator().manual_seed(seed))
    return torch.cat(
        [low, low + torch.randint(1, 9, low.shape, generator=torch.Generator().manual_seed(7))], 1
    ).float()


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


def test_position_sensitive_pooling() -> None:
    group, channels, scale = 3, 2, 0.5
    x = random(2, channels * group * group, 6, 7)
    low = random(2, 2, 4, low=0, high=6, seed=1)
    image = torch.tensor([[0.0, 1, 0, 1], [1, 1, 0, 0]], dtype=torch.float64)[:, None]
    rois = torch.cat([image, low, low + random(2, 2, 4, low=1, high=7, seed=2)], 1)
    rois[0, 1:, 0] = 40  # outside

    def expected(t: Tensor) -> Tensor:
        out = []
        for region in rois.transpose(1, 2).reshape(-1, 5).tolist():
            start = [round(v) * scale for v in region[1:3]]
            step = [
                max((round(v + 1)) * scale - s, 0.1) / group for v, s in zip(region[3:], start, strict=True)
            ]
            for c in range(channels):
                for h in range(group):
                    for w in range(group):
                        spans = []
                        for i, s, d, size in ((h, start[1], step[1], 6), (w, start[0], step[0], 7)):
                            spans.append(
                                slice(
                                    *(
                                        min(max(v, 0), size)
                                        for v in (math.floor(s + i * d), math.ceil(s + (i + 1) * d))
                                    )
                                )
                            )
                        part = t[int(region[0]), (c * group + h) * group + w, spans[0], spans[1]]
                        out.append(part.mean() if part.numel() else t.sum() * 0)
        return torch.stack(out).view(-1, channels, group, group)

    for dtype in HALVES:
        leaf = x.to(dtype).npu().requires_grad_()
        exact = x.to(dtype).double().requires_grad_()
        actual = torch_npu.npu_ps_roi_pooling(leaf, rois.to(dtype).npu(), scale, group, channels)
        reference = expected(exact)
        if dtype == torch.float16:  # the regions' ends are rounded before they are used
            continue
        compare(actual, reference.detach(), dtype, ulps=4)
        seed = random(*reference.shape, seed=3).to(dtype)
        actual.backward(seed.npu())
        reference.backward(seed.double())
        compare(leaf.grad, exact.grad, dtype, ulps=4)


def sampled(
    x: Tensor, offset: Tensor, kernel: int, stride: int, pad: int, dilation: int, groups: int
) -> Tensor:
    """Columns for a convolution with stride `kernel`: bilinear reads of x at moved places, times weights."""
    n, c, height, width = x.shape
    rows, columns = offset.shape[2:]
    moves = offset.view(n, 3, groups, kernel, kernel, rows, columns)
    k = torch.arange(kernel, dtype=x.dtype) * dilation - pad
    y = moves[:, 1] + k[:, None, None, None] + (torch.arange(rows, dtype=x.dtype) * stride)[:, None]
    z = moves[:, 0] + k[:, None, None] + torch.arange(columns, dtype=x.dtype) * stride
    place = torch.stack(
        [2 * z / (width - 1) - 1, 2 * y / (height - 1) - 1], -1
    )  # [n, groups, k, k, rows, columns, 2]
    place = place.permute(0, 1, 4, 2, 5, 3, 6).reshape(n * groups, rows * kernel, columns * kernel, 2)
    read = functional.grid_sample(
        x.reshape(n * groups, c // groups, height, width), place, align_corners=True
    )
    weight = moves[:, 2].permute(0, 1, 4, 2, 5, 3).reshape(n * groups, 1, rows * kernel, columns * kernel)
    return (read * weight).view(n, c, rows * kernel, columns * kernel)


@pytest.mark.parametrize(("stride", "pad", "dilation", "groups"), [(1, 1, 1, 1), (2, 0, 2, 2)])
def test_deformable_convolution(stride: int, pad: int, dilation: int, groups: int) -> None:
    kernel, size = 3, 9
    out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    x, weight, bias = random(2, 4, size, size), random(5, 4, kernel, kernel, seed=1), random(5, seed=2)
    offset = random(2, 3 * groups * kernel * kernel, out, out, low=-1.5, high=1.5, seed=3)
    leaves = [t.float().npu().requires_grad_() for t in (x, weight, offset, bias)]
    exact = [t.float().double().requires_grad_() for t in (x, weight, offset, bias)]
    actual, columns = torch_npu.npu_deformable_conv2d(
        *leaves,
        kernel_size=[kernel] * 2,
        stride=[1, 1, stride, stride],
        padding=[pad] * 4,
        dilation=[1, 1, dilation, dilation],
        groups=1,
        deformable_groups=groups,
        modulated=True,
    )
    made = sampled(exact[0], exact[2], kernel, stride, pad, dilation, groups)
    expected = functional.conv2d(made, exact[1], exact[3], stride=kernel)
    compare(columns, made.detach(), torch.float32, ulps=32, scale=1)  # places are float32
    compare(actual, expected.detach(), torch.float32, ulps=16, scale=8)
    seed = random(*expected.shape, seed=4).float()
    actual.backward(seed.npu())
    expected.backward(seed.double())
    for leaf, one in zip(leaves, exact, strict=True):
        assert one.grad is not None
        compare(leaf.grad, one.grad, torch.float32, ulps=32, scale=float(one.grad.abs().max()))


def test_deformable_samples_with_the_channels_first() -> None:
    """As with the channels last, which test_deformable_convolution judges."""
    x, offsets, slope = drawn(2, 5, 6, 4), drawn(2, 3, 3, 3 * 2 * 2 * 1), drawn(2, 6, 3, 4)
    last = {
        "ksize": [2, 1],
        "strides": [1, 2, 1, 1],
        "pads": [0, 1, 0, 0],
        "dilations": [1, 1, 3, 1],
        "deformable_groups": 2,
    }
    first = {**last, "strides": [1, 1, 2, 1], "dilations": [1, 1, 1, 3], "data_format": "NCHW"}

    def turned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.permute(0, 3, 1, 2).contiguous()

    (y,) = ran("DeformableOffsets", [x, offsets], slope.shape, **last)
    (same,) = ran("DeformableOffsets", [turned(x), turned(offsets)], turned(slope).shape, **first)
    assert torch.equal(turned(y), same) and y.abs().max() > 0.1
    back = ran("DeformableOffsetsGrad", [slope, x, offsets], x.shape, offsets.shape, **last)
    turned_back = ran(
        "DeformableOffsetsGrad",
        [turned(each) for each in (slope, x, offsets)],
        turned(x).shape,
        turned(offsets).shape,
        **first,
    )
    for one, other in zip(back, turned_back, strict=True):
        assert torch.equal(turned(one), other) and one.abs().max() > 0.1
