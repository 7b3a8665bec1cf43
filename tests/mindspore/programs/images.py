"""images.py: patches, resized and cropped images, regions, grids of places and losses of margins, whose operators MindSpore
calls by their type, beside torch in float64 (slopes.py)."""

import math

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, nn, ops
from slopes import drawn, main

F = torch.nn.functional
IMAGE, LAST, ROWS, LINE = drawn(2, 3, 6, 8), drawn(2, 6, 8, 3), drawn(4, 5), drawn(2, 3, 5)
COLUMNS = drawn(2, 3 * 6, 14)
BOXES = np.array([[0.1, 0.2, 0.7, 0.9], [0.5, 0.9, 0.1, 0.3], [-0.21, 0.3, 0.62, 1.3]], np.float32)
PICTURES = [0, 1, 1]
REGIONS = np.array([[0, 1, 2, 9, 7], [1, 0, 0, 3, 3], [1, 4, 1, 30, 20]], np.float32)
LABELS = np.array([1, 0, 4, 2])
SEVERAL = np.array([[1, 2, -1, 0, 0], [0, -1, 2, 2, 2], [4, 3, 2, 1, 0], [-1, 0, 0, 0, 0]])


def keys(d, a):
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def bicubic(x, size, centres, a, steps=1024):
    """TensorFlow's, whose weights are of `steps` places between two pixels; with the centres on each other no weight is
    beyond the edges."""
    for axis, count in zip((2, 3), size, strict=True):
        n, rows = x.shape[axis], []
        for i in range(count):
            place = (i + 0.5) * n / count - 0.5 if centres else i * n / count
            low = math.floor(place)
            share = round((place - low) * steps) / steps
            near = [(k, keys(share - (k - low), a)) for k in range(low - 1, low + 3)]
            if centres:
                near = [(k, w) for k, w in near if 0 <= k < n]
            whole = sum(w for _, w in near) if centres else 1
            rows.append(sum(x.select(axis, min(max(k, 0), n - 1)) * (w / whole) for k, w in near))
        x = torch.stack(rows, axis)
    return x


def crops(x, boxes, size=(4, 3)):
    """TensorFlow's crop_and_resize: corners on corners, zeros where it reaches outside."""
    out = []
    for box, picture in zip(boxes, PICTURES, strict=True):
        made, inside = x[picture], torch.ones(())
        for axis, (low, high) in enumerate(((box[0], box[2]), (box[1], box[3]))):
            last, count = x.shape[1 + axis] - 1, size[axis]
            place = (low + high) / 2 * last + torch.zeros(1)
            if count > 1:
                place = low * last + torch.arange(count) * (high - low) * last / (count - 1)
            there = (place >= 0) & (place <= last)
            first = place.detach().clamp(0, last).floor()
            share = (place - first).reshape([-1 if i == axis else 1 for i in range(3)])
            near = [made.index_select(axis, k.long()) for k in (first, place.detach().clamp(0, last).ceil())]
            made = near[0] + (near[1] - near[0]) * share
            inside = inside * there.reshape([-1 if i == axis else 1 for i in range(3)])
        out.append(made * inside)
    return torch.stack(out)


def regions(x, samples=2, size=2, scale=0.5):
    """ROIAlign: means of `samples` by `samples` places in each of `size` by `size` cells; all cells lie inside here or are
    moved to the edge."""
    out = []
    for picture, x0, y0, x1, y1 in REGIONS.astype(float):
        x0, y0, x1, y1 = x0 * scale, y0 * scale, (x1 + 1) * scale, (y1 + 1) * scale
        cells = [((y0, max(y1 - y0, 1)), x.shape[2]), ((x0, max(x1 - x0, 1)), x.shape[3])]
        matrices = []
        for (first, length), pixels in cells:
            rows = torch.zeros(size, pixels).double()
            for cell in range(size):
                for sample in range(samples):
                    place = first + length / size * (cell + (sample + 0.5) / samples)
                    if not -1 <= place <= pixels:
                        continue
                    place = min(max(place, 0), pixels - 1)
                    low = int(place)
                    rows[cell, low] += (1 - (place - low)) / samples
                    rows[cell, min(low + 1, pixels - 1)] += (place - low) / samples
            matrices.append(rows)
        out.append(torch.einsum("chw,yh,xw->cyx", x[int(picture)], *matrices))
    return torch.stack(out)


def places_first(x, kernel, stride):
    rows = (x.shape[2] - kernel) // stride + 1
    patches = F.unfold(x, kernel, stride=stride).reshape(x.shape[0], x.shape[1], kernel**2, rows, -1)
    return patches.transpose(1, 2).flatten(1, 2)


def resize(x, **how):
    return ops.interpolate(x, mode="bicubic", **how)


def first(x):
    return ops.operations.image_ops.ResizeBicubic()(x, Tensor([9, 7], ms.int32))


MAPS = [(3, 4), (2, 2)]
PIXELS, POINTS, SHARES = drawn(2, 16, 2, 8), 0.5 + drawn(2, 32, 2, 2, 3, 2) / 4, drawn(2, 32, 2, 2, 3)


def points_of_maps(x, places, shares):
    """Attention to points between the pixels of several maps: x has their pixels behind one another."""
    total, first = 0, 0
    for level, (rows, columns) in enumerate(MAPS):
        image = x[:, first : first + rows * columns].permute(0, 2, 3, 1).reshape(4, 8, rows, columns)
        grid, share = (each[:, :, :, level].transpose(1, 2).flatten(0, 1) for each in (2 * places - 1, shares))
        total = total + (F.grid_sample(image, grid, align_corners=False) * share.unsqueeze(1)).sum(3)
        first += rows * columns
    return total.reshape(2, 16, 32).transpose(1, 2)


def points(x, places, shares):
    numbers = Tensor(np.array(MAPS, np.int32)), Tensor(np.array([0, 12], np.int32))
    return ops.auto_generate.multi_scale_deformable_attn_op(x, *numbers, places, shares)


# MindSpore's function, torch's, what of.
CASES = {
    "points of several maps": (points, points_of_maps, [PIXELS, POINTS, SHARES]),
    "columns": (lambda x: ops.unfold(x, 3), lambda x: F.unfold(x, 3), [IMAGE]),
    "columns, padded": (
        lambda x: ops.unfold(x, (2, 3), padding=(1, 2), stride=(2, 1), dilation=(1, 2)),
        lambda x: F.unfold(x, (2, 3), padding=(1, 2), stride=(2, 1), dilation=(1, 2)),
        [IMAGE],
    ),
    "an image of columns": (
        lambda x: ops.fold(x, Tensor([9, 10], ms.int32), [2, 3], dilation=[3, 1], padding=[0, 1], stride=[6, 1])[
            ..., :9, :10
        ],
        lambda x: F.fold(x, (9, 10), (2, 3), (3, 1), (0, 1), (6, 1)),
        [drawn(2, 3 * 6, 10)],
    ),
    "an image of columns that overlap": (
        lambda x: ops.fold(x, Tensor([3, 8], ms.int32), [2, 3], stride=[1, 1])[..., :3, :8],
        lambda x: F.fold(x, (3, 8), (2, 3)),
        [drawn(2, 3 * 6, 12)],
    ),
    "patches in the channels": (
        lambda x: nn.Unfold([1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1])(x),
        lambda x: places_first(x, 2, 2),
        [IMAGE],
    ),
    "cubic, corners": (
        lambda x: resize(x, size=(11, 5), align_corners=True),
        lambda x: F.interpolate(x, (11, 5), mode="bicubic", align_corners=True),
        [IMAGE],
    ),
    "cubic, centres": (lambda x: resize(x, size=(9, 7)), lambda x: bicubic(x, (9, 7), True, -0.5), [IMAGE]),
    "cubic, first pixels": (first, lambda x: bicubic(x, (9, 7), False, -0.75), [IMAGE]),
    "a line, corners": (
        lambda x: ops.interpolate(x, size=9, mode="linear", align_corners=True),
        lambda x: F.interpolate(x, 9, mode="linear", align_corners=True),
        [LINE],
    ),
    "a line, centres": (
        lambda x: ops.interpolate(x, size=7, mode="linear"),
        lambda x: F.interpolate(x, 7, mode="linear"),
        [LINE],
    ),
    "crops": (lambda x, b: ops.crop_and_resize(x, b, Tensor(PICTURES, ms.int32), (4, 3)), crops, [LAST, BOXES]),
    "crops of one pixel": (
        lambda x, b: ops.crop_and_resize(x, b, Tensor(PICTURES, ms.int32), (1, 1)),
        lambda x, b: crops(x, b, (1, 1)),
        [LAST, BOXES],
    ),
    "regions": (lambda x: ops.ROIAlign(2, 2, 0.5, 2)(x, Tensor(REGIONS)), regions, [IMAGE]),
    "places of a map": (
        lambda x: ops.affine_grid(x, (2, 3, 4, 5)),
        lambda x: F.affine_grid(x, (2, 3, 4, 5), align_corners=False),
        [drawn(2, 2, 3)],
    ),
    "places of a map, corners": (
        lambda x: ops.affine_grid(x, (2, 3, 4, 5), True),
        lambda x: F.affine_grid(x, (2, 3, 4, 5), align_corners=True),
        [drawn(2, 2, 3)],
    ),
    "places of a map in a volume": (
        lambda x: ops.affine_grid(x, (2, 3, 4, 5, 6)),
        lambda x: F.affine_grid(x, (2, 3, 4, 5, 6), align_corners=False),
        [drawn(2, 3, 4)],
    ),
    "margins": (
        lambda x: nn.MultiMarginLoss()(x, Tensor(LABELS)),
        lambda x: F.multi_margin_loss(x, torch.tensor(LABELS)),
        [ROWS],
    ),
    "margins, squared and weighted": (
        lambda x: ops.multi_margin_loss(x, Tensor(LABELS), 2, 2, Tensor(np.abs(ROWS[0])), "none"),
        lambda x: F.multi_margin_loss(
            x, torch.tensor(LABELS), 2, 2, torch.tensor(np.abs(ROWS[0])).double(), reduction="none"
        ),
        [ROWS],
    ),
    "margins of several labels": (
        lambda x: nn.MultilabelMarginLoss()(x, Tensor(SEVERAL, ms.int32)),
        lambda x: F.multilabel_margin_loss(x, torch.tensor(SEVERAL)),
        [ROWS],
    ),
    "margins of several labels, each": (
        lambda x: nn.MultilabelMarginLoss("none")(x, Tensor(SEVERAL, ms.int32)),
        lambda x: F.multilabel_margin_loss(x, torch.tensor(SEVERAL), reduction="none"),
        [ROWS],
    ),
    "crops by another rule": (
        lambda x, b: ops.crop_and_resize(x, b, Tensor(PICTURES, ms.int32), (4, 3)),
        lambda x, b: crops(x, b + 0.02),
        [LAST, BOXES],
    ),
}


if __name__ == "__main__":
    main(CASES)
