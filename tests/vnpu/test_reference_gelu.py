"""The GELU of a reference run is the NPU's, and says so."""

from __future__ import annotations

import torch
from torch.nn import functional

from torchport.patches import Patches
from torchport.record import gelu


def test_the_reference_s_gelu_is_the_npu_s() -> None:
    x = torch.linspace(-4, 4, 1001, dtype=torch.float64)
    exact, known = functional.gelu(x), functional.gelu(x, approximate="tanh")
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(functional.gelu(leaf).sum(), leaf)
    notes: list[str] = []
    patches = Patches()
    gelu.replace_gelu_kernels(torch, "CPU", patches, notes.append)
    try:
        assert functional.gelu(x, approximate="tanh").equal(known)
        assert not notes
        leaf = x.clone().requires_grad_()
        found = functional.gelu(leaf)
        (other,) = torch.autograd.grad(found.sum(), leaf)
        functional.gelu(x.float())
    finally:
        patches.undo()
    assert found.equal(known) and len(notes) == 1
    assert 4e-4 < (found - exact).abs().max() <= gelu.LARGEST
    assert 8e-4 < (other - slope).abs().max() <= gelu.LARGEST_OF_GRADIENT
    assert functional.gelu(x).equal(exact), "undone"
