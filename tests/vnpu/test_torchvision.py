"""torchvision's own operators, from a CUDA build beside a CPU build of torch: right on the CPU and from the NPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import cuda_builds

SCRIPT = """
import torch
import torchvision
from torchvision.ops import box_iou, nms, roi_align
from torchvision.io import decode_image, encode_png

torch.manual_seed(0)
corners = 10 * torch.rand(60, 2)
boxes, scores = torch.cat([corners, corners + 3], 1), torch.rand(60)
kept, left = [], scores.argsort(descending=True).tolist()
iou = box_iou(boxes, boxes)
while left:
    kept.append(left.pop(0))
    left = [i for i in left if iou[kept[-1], i] <= 0.5]
assert 0 < len(kept) < 60
print("cpu", nms(boxes, scores, 0.5).tolist() == kept)
there = nms(boxes.cuda(), scores.cuda(), 0.5)
print("npu", there.is_cuda, there.tolist() == kept)

# A plane: what lies between pixels is known, and so are the means of the bins of a box inside it.
y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
expected = torch.tensor([[3 * (2 + 2 * j) + 2 + 2 * i for j in range(3)] for i in range(3)]).float()
for device in ("cpu", "cuda"):
    image = (3 * x + y)[None, None].to(device).requires_grad_()
    pooled = roi_align(image, [torch.tensor([[1.0, 1.0, 7.0, 7.0]], device=device)], 3)
    pooled.sum().backward()
    print(device, torch.allclose(pooled[0, 0].cpu(), expected), round(image.grad.sum().item(), 3))

picture = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8)
print("png", torch.equal(decode_image(encode_png(picture)), picture))
"""
LINES = """cpu True
npu True True
cpu True 9.0
cuda True 9.0
png True
"""


def test_the_operators_are_there_and_right(tmp_path: Path) -> None:
    script = tmp_path / "boxes.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torchport", "run", str(script)]
    run = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == LINES


@pytest.mark.parametrize("library", ["libc10_cuda.so", "libcudart.so.12", "libcudart.so.13"])
def test_a_stand_in_does_nothing_and_says_so(library: str) -> None:
    function = "torch_cuda_stream_synchronize" if "c10" in library else "cudaMemcpyAsync"
    code = f"import ctypes; ctypes.CDLL({str(cuda_builds.LIBRARIES / library)!r}).{function}()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGABRT  # no one above catches what it throws
    assert f"code for CUDA asked for {function}" in run.stderr
