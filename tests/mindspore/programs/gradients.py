"""gradients.py: layers and functions whose operators MindSpore calls by their type, beside torch in float64; one line of JSON
per case, with the largest difference of the values and of the gradients, relative to the largest number where that is > 1."""

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, nn, ops
from slopes import drawn, main

F = torch.nn.functional

IMAGE, VOLUME, ROWS = drawn(2, 3, 6, 8), drawn(2, 3, 4, 5, 6), drawn(4, 5)
SQUARE = 3 * np.eye(3, dtype=np.float32) + drawn(2, 3, 3) / 2
LABELS, BLANKED = np.array([[1, 2], [0, 1]]), drawn(6, 2, 4)


def to_batch(x, n=2):
    x = F.pad(x, (0, 0, 1, 1))
    b, c, h, w = x.shape
    return x.reshape(b, c, h // n, n, w // n, n).permute(3, 5, 0, 1, 2, 4).reshape(b * n * n, c, h // n, w // n)


def to_depth(x, n=2):
    b, c, h, w = x.shape
    return x.reshape(b, c, h // n, n, w // n, n).permute(0, 3, 5, 1, 2, 4).reshape(b, c * n * n, h // n, w // n)


def first_pixels(x, size, mode):
    """Resized with the first pixels on each other: torch has only the corners and the centres."""
    for axis, count in zip((2, 3), size, strict=True):
        place = torch.arange(count).double() * x.shape[axis] / count
        low = place.floor().long()
        high = (low + 1).clamp(max=x.shape[axis] - 1)
        share = (place - low).reshape([-1 if i == axis else 1 for i in range(4)]) if mode == "linear" else 0
        x = x.index_select(axis, low) * (1 - share) + x.index_select(axis, high) * share
    return x


def ctc(x):
    return F.ctc_loss(x.log_softmax(-1), torch.tensor(LABELS) + 1, [6, 5], [2, 2], blank=0, reduction="none")


def ctc_of_last(x):
    return F.ctc_loss(x.log_softmax(-1), torch.tensor(LABELS), [6, 5], [2, 2], blank=3, reduction="none")


PLACES = Tensor(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), ms.int64)
HEIGHTS = Tensor([2, 3, 1, 5], ms.int64)

# MindSpore's function, torch's, what of.
CASES = {
    "space to batch": (lambda x: ops.space_to_batch_nd(x, [2, 2], [[1, 1], [0, 0]]), to_batch, [IMAGE]),
    "batch to space": (
        lambda x: ops.batch_to_space_nd(ops.space_to_batch_nd(x, [2, 2], [[1, 1], [0, 0]]), [2, 2], [[1, 1], [0, 0]]),
        lambda x: x * 1,
        [IMAGE],
    ),
    "space to batch by attributes": (
        lambda x: ops.operations.array_ops.SpaceToBatch(2, [[1, 1], [0, 0]])(x),
        to_batch,
        [IMAGE],
    ),
    "space to depth": (lambda x: ops.SpaceToDepth(2)(x), to_depth, [IMAGE]),
    "depth to space": (lambda x: ops.DepthToSpace(2)(ops.SpaceToDepth(2)(x)), lambda x: x * 1, [IMAGE]),
    "bilinear": (lambda x: ops.ResizeBilinearV2()(x, (9, 5)), lambda x: first_pixels(x, (9, 5), "linear"), [IMAGE]),
    "bilinear, corners": (
        lambda x: ops.ResizeBilinearV2(align_corners=True)(x, (9, 5)),
        lambda x: F.interpolate(x, (9, 5), mode="bilinear", align_corners=True),
        [IMAGE],
    ),
    "bilinear, centres": (
        lambda x: ops.ResizeBilinearV2(half_pixel_centers=True)(x, (9, 5)),
        lambda x: F.interpolate(x, (9, 5), mode="bilinear"),
        [IMAGE],
    ),
    "nearest": (lambda x: ops.interpolate(x, size=(9, 5), mode="nearest"), lambda x: F.interpolate(x, (9, 5)), [IMAGE]),
    "adaptive mean": (lambda x: nn.AdaptiveAvgPool2d((4, 3))(x), lambda x: F.adaptive_avg_pool2d(x, (4, 3)), [IMAGE]),
    "adaptive mean of a volume": (
        lambda x: nn.AdaptiveAvgPool3d((3, 2, 4))(x),
        lambda x: F.adaptive_avg_pool3d(x, (3, 2, 4)),
        [VOLUME],
    ),
    "mean of a volume": (lambda x: nn.AvgPool3d(2, 2)(x), lambda x: F.avg_pool3d(x, 2, 2), [VOLUME]),
    "mean of a padded volume": (
        lambda x: nn.AvgPool3d(3, 2, pad_mode="pad", padding=1, ceil_mode=True)(x),
        lambda x: F.avg_pool3d(x, 3, 2, 1, True),
        [VOLUME],
    ),
    "mean without the padding": (
        lambda x: nn.AvgPool3d(3, 2, pad_mode="pad", padding=1, count_include_pad=False)(x),
        lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
        [VOLUME],
    ),
    "maximum of a volume": (lambda x: nn.MaxPool3d(2, 2)(x), lambda x: F.max_pool3d(x, 2, 2), [VOLUME]),
    "neighbours": (
        lambda x: ops.lrn(x, depth_radius=1, bias=1.5, alpha=0.7, beta=0.6),
        lambda x: F.local_response_norm(x, 3, 2.1, 0.6, 1.5),
        [IMAGE],
    ),
    "unit length": (lambda x: ops.L2Normalize(1, 1e-4)(x), lambda x: F.normalize(x, dim=1), [ROWS]),
    "softplus": (lambda x: ops.Softplus()(x), F.softplus, [ROWS]),
    "softsign": (ops.softsign, F.softsign, [ROWS]),
    "celu": (lambda x: ops.celu(x, 1.5), lambda x: F.celu(x, 1.5), [ROWS]),
    "mish": (lambda x: nn.Mish()(x), F.mish, [ROWS]),
    "fast gelu": (lambda x: nn.FastGelu()(x), lambda x: x * torch.sigmoid(1.702 * x), [ROWS]),
    "norm": (lambda x: ops.norm(x), lambda x: x.norm(), [ROWS]),
    "reflected": (
        lambda x: nn.ReflectionPad2d((1, 2, 3, 0))(x),
        lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"),
        [IMAGE],
    ),
    "edges": (
        lambda x: nn.ReplicationPad2d((1, 2, 3, 0))(x),
        lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"),
        [IMAGE],
    ),
    "constant": (
        lambda x: nn.ConstantPad2d((1, 2, 0, 3), 2.0)(x),
        lambda x: F.pad(x, (1, 2, 0, 3), value=2.0),
        [IMAGE],
    ),
    "mirrored": (
        lambda x: nn.Pad(((0, 0), (0, 0), (2, 1), (1, 2)), "SYMMETRIC")(x),
        lambda x: torch.cat(
            [
                torch.cat([x[:, :, :2].flip(2), x, x[:, :, -1:]], 2)[..., :1],
                torch.cat([x[:, :, :2].flip(2), x, x[:, :, -1:]], 2),
                torch.cat([x[:, :, :2].flip(2), x, x[:, :, -1:]], 2)[..., -2:].flip(3),
            ],
            3,
        ),
        [IMAGE],
    ),
    "scatter": (
        lambda x: ops.scatter_nd(Tensor([[1], [0], [1], [2]]), x, (3, 5)),
        lambda x: torch.zeros(3, 5).double().index_add(0, torch.tensor([1, 0, 1, 2]), x),
        [ROWS],
    ),
    "sorted": (lambda x: ops.sort(x)[0], lambda x: x.sort()[0], [ROWS]),
    "largest of segments": (
        lambda x: ops.unsorted_segment_max(x, Tensor([1, 0, 1, 0]), 2),
        lambda x: torch.stack([x[[1, 3]].amax(0), x[[0, 2]].amax(0)]),
        [ROWS],
    ),
    "smallest of segments": (
        lambda x: ops.unsorted_segment_min(x, Tensor([1, 0, 1, 0]), 2),
        lambda x: torch.stack([x[[1, 3]].amin(0), x[[0, 2]].amin(0)]),
        [ROWS],
    ),
    "reversed": (
        lambda x: ops.reverse_sequence(x, HEIGHTS, 1),
        lambda x: torch.stack([torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(x, (2, 3, 1, 5), strict=True)]),
        [ROWS],
    ),
    "ctc": (
        lambda x: ops.ctc_loss(
            ops.log_softmax(x, -1),
            Tensor(LABELS + 1, ms.int32),
            Tensor([6, 5], ms.int32),
            Tensor([2, 2], ms.int32),
            0,
            "none",
        )[0],
        ctc,
        [BLANKED],
    ),
    "ctc, the last is blank": (
        lambda x: ops.CTCLoss()(x, PLACES, Tensor(LABELS.flatten(), ms.int32), Tensor([6, 5], ms.int32))[0],
        ctc_of_last,
        [BLANKED],
    ),
    "inverse": (lambda x: ops.inverse(x), torch.linalg.inv, [SQUARE]),
    "determinant": (lambda x: ops.det(x), torch.linalg.det, [SQUARE]),
    "log of the determinant": (lambda x: ops.slogdet(x)[1], lambda x: torch.linalg.slogdet(x)[1], [SQUARE]),
    "trace": (lambda x: ops.trace(x[0]), lambda x: x[0].trace(), [SQUARE]),
    "another way of laying the grids": (
        lambda x: ops.ResizeBilinearV2()(x, (9, 5)),
        lambda x: F.interpolate(x, (9, 5), mode="bilinear"),
        [IMAGE],
    ),
    "lstm": None,
    "convolution of a volume": None,
}


def network(name):
    """With weights of its own: their gradients are compared, too."""
    torch.manual_seed(5)
    if name == "lstm":
        ours, theirs, x = nn.LSTM(4, 8), torch.nn.LSTM(4, 8).double(), drawn(3, 2, 4)
        function = lambda x: ours(x)[0]  # noqa: E731
        expected = lambda x: theirs(x)[0]  # noqa: E731
    else:
        ours, theirs, x = (
            nn.Conv3d(3, 4, 2, has_bias=False, pad_mode="valid"),
            torch.nn.Conv3d(3, 4, 2, bias=False).double(),
            VOLUME,
        )
        function, expected = ours, theirs
    return function, expected, [x], ours, theirs


if __name__ == "__main__":
    main({name: case or network(name) for name, case in CASES.items()})
