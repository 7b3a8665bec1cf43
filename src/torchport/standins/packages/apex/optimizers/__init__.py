"""apex.optimizers: the Fused* ones of NVIDIA's build and the NpuFused* ones of the Ascend build."""

from __future__ import annotations

from typing import Any

from .adaptive import FusedAdagrad, FusedAdam, FusedSGD
from .layerwise import FusedLAMB, FusedNovoGrad

__all__ = ["FusedAdagrad", "FusedAdam", "FusedLAMB", "FusedNovoGrad", "FusedSGD"]


def __getattr__(name: str) -> Any:
    # Not imported above: with apex alone, a script also runs where there is no NPU.
    if name.startswith("NpuFused"):
        import torch_npu.optim

        return getattr(torch_npu.optim, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
