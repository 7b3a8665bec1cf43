"""matmul/lora.cpp: products with the weights that each row names."""

import pytest
import torch
import torch_npu
from aclnn import first_phase
from oracle import random

TILING_REFUSED = 561002


@pytest.mark.parametrize("inner", [False, True])
def test_add_lora(inner: bool) -> None:
    rows, rank, width = 5, 16, 32
    y, x = random(rows, 64).half(), random(rows, 48 if inner else rank, seed=1).half()
    a, b = random(3, 2, rank, 48, seed=2).half(), random(3, 2, width, rank, seed=3).half()
    indices = torch.tensor([2, 0, 3, -1, 2], dtype=torch.int32)  # 3 and -1 name no weights
    expected = y.double()
    for row, which in enumerate(indices.tolist()):
        if 0 <= which < 3:
            between = (x[row].double() @ a[which, 1].double().T).half().double() if inner else x[row].double()
            expected[row, 8 : 8 + width] += between @ b[which, 1].double().T * 0.5
    out = torch_npu.npu_batch_gather_matmul_(  # the one that is not in place returns y as it was
        y.npu(),
        x.npu(),
        b.npu(),
        indices.npu(),
        a.npu() if inner else None,
        layer_idx=1,
        scale=0.5,
        y_offset=8,
        y_slice_size=width,
    )
    torch.testing.assert_close(out.cpu(), expected.half(), rtol=2e-3, atol=4e-3)


def test_add_lora_refuses_what_has_no_plan() -> None:
    def said(layer: int, width: int) -> int:
        half = torch.float16
        y, x = torch.ones(2, 32, dtype=half).npu(), torch.ones(2, 16, dtype=half).npu()
        b, index = torch.ones(2, 1, 32, 16, dtype=half).npu(), torch.zeros(2, dtype=torch.int32).npu()
        return first_phase("aclnnAddLora", y, x, b, index, None, layer, 1.0, 0, width, y)[0]

    assert said(0, 32) == 0
    assert said(1, 32) == TILING_REFUSED and said(0, 16) == TILING_REFUSED
