"""Region of interest pooling, against bilinear sampling written out in float64 with autograd."""

import math

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import compare, random

REGIONS = torch.tensor([[0, -2.0, -2.0, 22.0, 22.0], [1, 3.0, 1.0, 9.0, 17.5], [1, 0.0, 0.0, 0.5, 0.5]])


def pooled(
    x: torch.Tensor, regions: torch.Tensor, scale: float, height: int, width: int, samples: int, mode: int
) -> torch.Tensor:
    def pixel(picture: torch.Tensor, y: float, x: float) -> torch.Tensor:
        h, w = picture.shape[1:]
        if y < -1 or y > h or x < -1 or x > w:
            return torch.zeros(picture.shape[0], dtype=picture.dtype)
        y, x = min(max(y, 0.0), h - 1.0), min(max(x, 0.0), w - 1.0)
        top, left = min(int(y), h - 1), min(int(x), w - 1)
        bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
        dy, dx = y - top, x - left
        return (
            picture[:, top, left] * (1 - dy) * (1 - dx)
            + picture[:, top, right] * (1 - dy) * dx
            + picture[:, bottom, left] * dy * (1 - dx)
            + picture[:, bottom, right] * dy * dx
        )

    results = []
    for batch, x0, y0, x1, y1 in regions.tolist():
        shift, beyond = (0.5 if mode >= 2 else 0.0), (1.0 if mode == 1 else 0.0)
        left, top = x0 * scale - shift, y0 * scale - shift
        w, h = (x1 + beyond) * scale - shift - left, (y1 + beyond) * scale - shift - top
        if mode < 2:
            w, h = (max(side, 1.0) for side in (w, h))
        ny, nx = samples or math.ceil(h / height), samples or math.ceil(w / width)
        cells = [
            sum(
                pixel(x[int(batch)], top + h / height * (i + (sy + 0.5) / ny), left + w / width * (j + (sx + 0.5) / nx))
                for sy in range(ny)
                for sx in range(nx)
            )
            / (ny * nx)
            for i in range(height)
            for j in range(width)
        ]
        results.append(torch.stack(cells, 1).view(x.shape[1], height, width))
    return torch.stack(results)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("samples", [0, 2])
def test_values_and_gradients(mode: int, samples: int) -> None:
    x = random(2, 3, 6, 5).requires_grad_()
    expected = pooled(x, REGIONS, 0.25, 3, 2, samples, mode)
    out = torch_npu.npu_roi_align(x.detach().float().npu(), REGIONS.npu(), 0.25, 3, 2, samples, mode)
    compare(out, expected.detach(), torch.float32, ulps=32)
    grad = random(*expected.shape, seed=2)
    expected.backward(grad)
    back = torch_npu.npu_roi_alignbk(grad.float().npu(), REGIONS.npu(), list(x.shape), 2, 3, 0.25, samples, mode)
    compare(back, x.grad, torch.float32, ulps=32)


def test_published_values() -> None:
    """Those of op-plugin's own test of the gradient, whose default end mode is 1."""
    x = torch.arange(1.0, 37.0).view(1, 1, 6, 6)
    out = torch_npu.npu_roi_align(x.npu(), REGIONS[:1].npu(), 0.25, 3, 3, 2, 0)
    assert out.cpu().flatten().tolist() == [4.5, 6.5, 8.5, 16.5, 18.5, 20.5, 28.5, 30.5, 32.5]
    back = torch_npu.npu_roi_alignbk(out, REGIONS[:1].npu(), [1, 1, 6, 6], 3, 3, 0.25, 2)
    assert back.cpu()[0, 0, 0].tolist() == pytest.approx([1.0786, 1.0557, 1.4942, 1.5248, 1.9226, 2.4709], abs=1e-4)


def test_refusals() -> None:
    x, out = torch.ones(1, 2, 4, 4, device="npu"), torch.ones(3, 2, 2, 2, device="npu")
    for regions, mode, words in (
        (REGIONS[:, :4], 0, "shape [3, 4], expected [3, 5]"),
        (REGIONS, 4, "roi_end_mode is 4"),
    ):
        status, message = first_phase("aclnnROIAlign", x, regions.npu(), 1.0, 2, 2, 2, mode, out)
        assert status == INVALID_ARGUMENT and words in message, message
