"""Operators of the old API that MindSpore's networks call by their type: the tests that are over several families."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from aclop import drawn, near, ran


def test_norms_and_losses() -> None:
    x = drawn(4, 5)
    wide = x.double()
    (y,) = ran("L2Normalize", [x], x.shape, axis=[1], eps=1e-4)
    near(y, wide / (wide * wide).sum(1, True).sqrt())
    (y,) = ran("LpNorm", [x], (4,), p=2, axes=[1], keepdim=False, epsilon=1e-12)
    near(y, wide.norm(dim=1))
    deviation, mean = ran("ReduceStd", [x], (4,), (4,), dim=[1], unbiased=True, keepdim=False)
    near(deviation, wide.std(1))
    near(mean, wide.mean(1))
    target = drawn(4, 5).softmax(1)
    for reduction in ("none", "sum", "mean", "batchmean"):
        size = (4, 5) if reduction == "none" else ()
        (y,) = ran("KLDiv", [x, target], size, reduction=reduction)
        near(y, F.kl_div(wide, target.double(), reduction=reduction), 1e-5)
    (y,) = ran("Diag", [x[0]], (5, 5))
    near(y, torch.diag(wide[0]))


def test_what_picks_and_places() -> None:
    x = drawn(3, 4)
    wide = x.double()
    classes = torch.tensor([0, 2, 5], dtype=torch.int32)
    (y,) = ran("OneHot", [classes, [4], torch.tensor([2.0]), torch.tensor([-1.0])], (3, 4), axis=-1)
    near(y, torch.tensor([[2.0, -1, -1, -1], [-1, -1, 2, -1], [-1, -1, -1, -1]]))
    values, where = ran("TopK", [x, [2]], (3, 2), (3, 2, torch.int32), sorted=True, largest=True, dim=-1)
    near(values, wide.topk(2)[0])
    near(where, wide.topk(2)[1])
    values, where = ran("Sort", [x], (3, 4), (3, 4, torch.int32), axis=-1, descending=True)
    near(values, wide.sort(descending=True)[0])
    near(where, wide.sort(descending=True)[1])
    segments = torch.tensor([1, -1, 1], dtype=torch.int32)
    (y,) = ran("UnsortedSegmentSum", [x, segments, [3]], (3, 4))
    near(y, torch.stack([torch.zeros(4).double(), wide[0] + wide[2], torch.zeros(4).double()]))
    places = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    (y,) = ran("GatherNd", [x, places], (2,))
    near(y, torch.stack([wide[0, 1], wide[2, 3]]))
    (y,) = ran("TensorScatterUpdate", [x, places, torch.tensor([8.0, 9.0])], (3, 4))
    expected = wide.clone()
    expected[0, 1], expected[2, 3] = 8, 9
    near(y, expected)
    (y,) = ran("Cumsum", [x, [1]], (3, 4), exclusive=True, reverse=True)
    near(y, wide.flip(1).cumsum(1).flip(1) - wide)


X = drawn(2, 6, 4)
IMAGE = drawn(2, 3, 5, 7)


def test_normalized_images_and_neighbours() -> None:
    gamma, beta = drawn(3), drawn(3)
    y, mean, variance = ran("InstanceNorm", [IMAGE, gamma, beta], IMAGE.shape, (6,), (6,), epsilon=1e-5)
    near(y, F.instance_norm(IMAGE.double(), weight=gamma.double(), bias=beta.double(), eps=1e-5))
    near(mean, IMAGE.double().mean((2, 3)).flatten())
    near(variance, IMAGE.double().var((2, 3), correction=0).flatten())
    (y,) = ran("LRN", [IMAGE], IMAGE.shape, depth_radius=1, alpha=0.5, beta=0.75, bias=2.0)
    near(y, F.local_response_norm(IMAGE.double(), 3, alpha=1.5, beta=0.75, k=2.0))
    one, other = ran("SquareSumAll", [X, IMAGE], (), ())
    near(one, X.double().square().sum())
    near(other, IMAGE.double().square().sum())
