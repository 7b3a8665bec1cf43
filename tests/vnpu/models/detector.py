"""A single-shot detector (Liu et al. 2016): heads over feature maps of three scales, default boxes, matched targets."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.family import Batch, Family, at_least_float32

SIDE, CLASSES, OBJECTS = 32, 4, 3  # class 0 is the background
SCALES = ((8, (0.15, 0.25)), (4, (0.35, 0.5)), (2, (0.65, 0.85)))  # cells a side, sides of a cell's boxes
VARIANCES = (0.1, 0.1, 0.2, 0.2)  # of centre and size, by which the paper's code divides offsets


def default_boxes() -> Tensor:
    """(boxes, 4): centre and size in units of the image, in the order in which the heads give them."""
    boxes = []
    for cells, sides in SCALES:
        for row in range(cells):
            for column in range(cells):
                centre = ((column + 0.5) / cells, (row + 0.5) / cells)
                boxes += [(*centre, side, side) for side in sides]
    return torch.tensor(boxes)


def convolution(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Detector(nn.Module):
    """(N, 3, SIDE, SIDE) -> (N, boxes, 4 + CLASSES): offsets from the default boxes, then logits."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, width, 2), convolution(width, width, 1))
        self.scales = nn.ModuleList(convolution(width, width, 2) for _ in SCALES)
        self.heads = nn.ModuleList(nn.Conv2d(width, len(sides) * (4 + CLASSES), 3, padding=1) for _, sides in SCALES)
        self.register_buffer("boxes", default_boxes())

    def forward(self, images: Tensor) -> Tensor:
        x, outputs = self.stem(images), []
        for scale, head in zip(self.scales, self.heads, strict=True):
            x = scale(x)
            outputs.append(head(x).permute(0, 2, 3, 1).reshape(len(x), -1, 4 + CLASSES))
        return torch.cat(outputs, dim=1)


def corners(boxes: Tensor) -> Tensor:
    """Centre and size to (left, top, right, bottom)."""
    centre, size = boxes.split(2, dim=-1)
    return torch.cat([centre - size / 2, centre + size / 2], dim=-1)


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of each of (..., A, 4) with each of (..., B, 4): (..., A, B)."""
    a, b = corners(a).unsqueeze(-2), corners(b).unsqueeze(-3)
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(dim=-1)
    area_a, area_b = ((x[..., 2:] - x[..., :2]).prod(dim=-1) for x in (a, b))
    return shared / (area_a + area_b - shared)


def match(boxes: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
    """The offsets (N, boxes, 4) and class (N, boxes) that each default box should give: those of the object that it
    covers by more than 0.4 or best of all boxes, else the background."""
    covered = overlap(boxes, objects[..., :4])
    best, which = covered.max(dim=2)
    favourite = covered.argmax(dim=1)
    best = best.scatter(1, favourite, 1.0)
    which = which.scatter(1, favourite, torch.arange(OBJECTS, device=boxes.device).expand_as(favourite))
    taken = objects.gather(1, which.unsqueeze(-1).expand(-1, -1, 5))
    offsets = torch.cat(
        [(taken[..., :2] - boxes[:, :2]) / boxes[:, 2:], (taken[..., 2:4] / boxes[:, 2:]).log()], dim=-1
    )
    variances = torch.tensor(VARIANCES, device=boxes.device, dtype=boxes.dtype)
    return offsets / variances, (taken[..., 4].long() + 1).masked_fill(best < 0.4, 0)


def multibox_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Smooth L1 of the matched boxes' offsets and cross-entropy of those and of three times as many others."""
    images, objects = batch
    outputs = at_least_float32(model(images))
    offsets, classes = match(model.boxes, objects)
    positive = classes > 0
    located = functional.smooth_l1_loss(outputs[..., :4][positive], offsets[positive], reduction="sum")
    judged = functional.cross_entropy(outputs[..., 4:].transpose(1, 2), classes, reduction="none")
    return (located + judged[positive | hard(judged, positive)].sum()) / positive.sum()


def hard(losses: Tensor, positive: Tensor) -> Tensor:
    """The negatives of the highest losses, three for each positive of the same image."""
    _, order = losses.detach().masked_fill(positive, -1).sort(dim=1, descending=True)
    _, rank = order.sort(dim=1)
    return ~positive & (rank < 3 * positive.sum(dim=1, keepdim=True))


def images_and_objects(generator: torch.Generator) -> Batch:
    """Noise, and for each image objects of (centre, size, class)."""
    centre = 0.2 + 0.6 * torch.rand(8, OBJECTS, 2, generator=generator)
    size = 0.15 + 0.6 * torch.rand(8, OBJECTS, 2, generator=generator)
    classes = torch.randint(CLASSES - 1, (8, OBJECTS, 1), generator=generator).float()
    return torch.randn(8, 3, SIDE, SIDE, generator=generator), torch.cat([centre, size, classes], dim=2)


FAMILIES = (Family("ssd", Detector, images_and_objects, multibox_loss),)
