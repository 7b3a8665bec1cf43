"""image/aclop_position_sensitive.cpp through torch_npu's functions."""

from __future__ import annotations

import math

import torch
import torch_npu
from oracle import compare, random
from torch import Tensor

HALVES = (torch.float32, torch.float16)


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
            step = [max((round(v + 1)) * scale - s, 0.1) / group for v, s in zip(region[3:], start, strict=True)]
            for c in range(channels):
                for h in range(group):
                    for w in range(group):
                        spans = []
                        for i, s, d, size in ((h, start[1], step[1], 6), (w, start[0], step[0], 7)):
                            spans.append(
                                slice(
                                    *(min(max(v, 0), size) for v in (math.floor(s + i * d), math.ceil(s + (i + 1) * d)))
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
