"""What the model of time counts of an operator (csrc/opapi/aclnn/work.cpp): multiplications and additions, bytes of memory
and of conversions, each worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked import python

from torchport.predict.timeline import read_timeline

PROGRAM = """
import torch
torch.npu.config.allow_internal_format = False
a, b = torch.ones(64, 32, device="npu"), torch.ones(32, 48, device="npu")
images, kernels = torch.ones(2, 3, 8, 8, device="npu"), torch.ones(5, 3, 3, 3, device="npu")
{call}
torch.npu.synchronize()
"""
MATRIX = 64 * 32 * 4  # bytes
PRODUCT = 2 * 64 * 32 * 48
PRODUCT_BYTES = 4 * (64 * 32 + 32 * 48 + 64 * 48)
# 3 channels into 5, in blocks of 16; those of the images lie in blocks, too, on a chip that reads nothing else.
CONVOLUTION = 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3) * (16 / 3) * (16 / 5)
IMAGES, KERNELS, MADE = 4 * 2 * 3 * 8 * 8, 4 * 5 * 3 * 3 * 3, 4 * 2 * 5 * 6 * 6

# The last task's operator, unit, flops, bytes and converted bytes, of a 910A and a 910B.
ROWS = {
    "a + 1": ("aclnnAdds", "stream", *2 * [(0, 2 * MATRIX, 0)]),
    # another order of reading is a conversion, back and forth
    "a.t() + 1": ("aclnnAdds", "stream", *2 * [(0, 2 * MATRIX, 2 * MATRIX)]),
    # statistics are a pass of their own
    "torch.softmax(a, -1)": ("aclnnSoftmax", "norm", *2 * [(0, 3 * MATRIX, 0)]),
    # two rows of 32, read and written, and their indices; not the rest of the table
    "a[torch.tensor([3, 1], device='npu')]": ("aclnnIndex", "gather", *2 * [(0, 2 * 2 * 32 * 4 + 2 * 8, 0)]),
    # float32 takes the 910B's matrix unit four times as long; the 910A brings all into blocks
    "a @ b": ("aclnnMatmul", "cube", (PRODUCT, PRODUCT_BYTES, 2 * PRODUCT_BYTES), (4 * PRODUCT, PRODUCT_BYTES, 0)),
    # sequence first, one sample: all leading dimensions are rows
    "a.unsqueeze(1) @ b": (
        "aclnnMatmul",
        "cube",
        (PRODUCT, PRODUCT_BYTES, 2 * PRODUCT_BYTES),
        (4 * PRODUCT, PRODUCT_BYTES, 0),
    ),
    "torch.nn.functional.conv2d(images, kernels)": (
        "aclnnConvolution",
        "cube",
        (CONVOLUTION, IMAGES * 16 / 3 + KERNELS * 16 / 3 + MADE * 16 / 5, 0),
        (2 * CONVOLUTION, IMAGES + KERNELS + MADE, 2 * (IMAGES + KERNELS + MADE)),
    ),
}


@pytest.mark.parametrize("call", ROWS)
def test_counted_by_hand(call: str, tmp_path: Path) -> None:
    name, unit, *chips = ROWS[call]
    for soc, (flops, bytes_, converted) in zip(("Ascend910A", "Ascend910B3"), chips, strict=True):
        log = tmp_path / soc
        done = python(
            PROGRAM.format(call=call), VNPU_MODE="dry", VNPU_TIME="model", VNPU_SOC=soc, VNPU_TIMELINE=str(log)
        )
        assert done.returncode == 0, done.stderr
        task = [task for task in read_timeline(log).tasks if task.unit != "none"][-1]
        assert (task.name, task.unit) == (name, unit)
        assert (task.flops, task.bytes, task.converted) == pytest.approx((flops, bytes_, converted))
