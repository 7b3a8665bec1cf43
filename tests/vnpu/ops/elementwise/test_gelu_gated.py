"""GELU of one half times the other half: torch_npu's npu_gelu_mul and npu_geglu."""

import aclnn
import pytest
import torch
import torch_npu
from oracle import check, random
from torch.nn import functional


def gated(x, dim, approximate, left):
    first, second = x.chunk(2, dim)
    active, factor = (first, second) if left else (second, first)
    activated = functional.gelu(active, approximate=approximate)
    return activated * factor, activated


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_mul(approximate):
    check(
        lambda x: torch_npu.npu_gelu_mul(x, approximate=approximate),
        random(3, 8),
        reference=lambda x: gated(x, -1, approximate, True)[0].detach(),
        grad=False,
        ulps=4,
    )


@pytest.mark.parametrize(("dim", "approximate", "left"), [(-1, 1, False), (0, 0, True), (1, 1, True)])
def test_geglu_and_its_gradient(dim, approximate, left):
    form = ["none", "tanh"][approximate]
    check(
        lambda x: torch_npu.npu_geglu(x, dim=dim, approximate=approximate, activate_left=left)[0],
        random(4, 6, 8),
        reference=lambda x: gated(x, dim, form, left)[0],
        ulps=8,
    )


def test_first_phase_refuses():
    x, half = torch.zeros(3, 8, device="npu"), torch.zeros(3, 4, device="npu")
    for name, arguments, text in (
        ("aclnnGeluMul", (x, "erf", half), 'approximateOptional is "erf"'),
        ("aclnnGeGluV3", (x, 0, 1, True, half, half), "dimension 0 cannot be halved"),
        ("aclnnGeGluV3", (x, 1, 2, True, half, half), "approximate is 2"),
    ):
        status, message = aclnn.first_phase(name, *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message
