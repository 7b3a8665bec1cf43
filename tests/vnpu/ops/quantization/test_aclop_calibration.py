"""quantization/aclop_calibration.cpp through torch_npu's functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_npu
from oracle import random

HALVES = (torch.float32, torch.float16)


@pytest.mark.parametrize("dtype", HALVES)
def test_sign_bits(dtype: torch.dtype) -> None:
    """Bit i is the i-th of eight numbers, 1 for those that are not negative."""
    for length, rows in ((17, 1), (8, 1), (33, 5), (16, 2)):
        x = random(length, low=-9, high=9).to(dtype)
        x[0] = -0.0
        expected = np.packbits(x.numpy() >= 0, bitorder="little").reshape(rows, -1)
        packed = torch_npu.npu_sign_bits_pack(x.npu(), rows)
        assert np.array_equal(packed.cpu().numpy(), expected)
        signs = torch_npu.npu_sign_bits_unpack(packed.flatten(), rows, dtype).cpu()
        unpacked = np.unpackbits(expected.flatten(), bitorder="little").astype(np.float32) * 2 - 1
        assert signs.dtype == dtype and np.array_equal(signs.float().numpy(), unpacked.reshape(rows, -1))


@pytest.mark.parametrize("offset", [True, False])
def test_search_for_a_scale(offset: bool) -> None:
    x, bins = random(2, 2, 3, 4, low=-1, high=1.5).float(), 128
    low, high = x.min().reshape(1), x.max().reshape(1)
    share = torch.histc(x, bins, float(low), float(high)).cumsum(0)
    scale, shift = torch_npu.npu_ifmr(
        x.npu(), low.npu(), high.npu(), share.int().npu(), 0.999999, 0.999999, 0.7, 1.3, 0.01, offset
    )
    data, span = x.double().numpy(), float(high - low)
    cdf = share.numpy() / x.numel()
    top = (cdf < 0.999999).sum() / bins * span + float(low)
    bottom = (cdf < 1 - 0.999999).sum() / bins * span + float(low)
    best: tuple[float, float, float] = (np.inf, 0, 0)
    for step in range(61):
        size = 0.7 + 0.01 * step
        if offset:
            one = (max(top, 0) * size - min(bottom, 0)) / 255
            zero = -(np.round(min(bottom, 0) / one) + 128)
        else:
            one, zero = max(abs(top), abs(bottom)) * size / 127, 0.0
        error = (np.clip(np.round(data / one + zero), -128, 127) - zero) * one - data
        best = min(best, (float((error**2).sum()), one, zero))
    assert abs(float(scale.item()) - best[1]) < 1e-4 * best[1] and float(shift.item()) == best[2]
