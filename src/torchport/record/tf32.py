"""TF32 on a GPU: errors of 1e-3 in what is called float32, which a comparison would take for the port's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torchport.record.part import Part

FIRST = (8, 0)  # compute capability of the first GPUs that have it
OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # "0": CUDA's libraries never use it


class Tf32(Part):
    """Says in a note, after the first step, that the GPU computes with TF32."""

    def __init__(self, torch: Any, note: Callable[[str], None]) -> None:
        self._torch = torch
        self._note = note
        self._told = False

    def step_done(self) -> None:
        """The script has chosen by now."""
        torch = self._torch
        if self._told or not torch.cuda.is_initialized():
            return
        self._told = True
        if os.environ.get(OVERRIDE) == "0" or torch.cuda.get_device_capability() < FIRST:
            return
        kinds = [kind for kind, used in _used(torch.backends) if used]
        if kinds:
            self._note(
                f"the GPU computes {' and '.join(kinds)} with TF32, to 1e-3: for a comparison in float32 record with "
                f"{OVERRIDE}=0"
            )


def _used(backends: Any) -> list[tuple[str, bool]]:
    """By kind; since torch 2.9 in other names, and asking by the old ones may raise then."""
    if hasattr(backends.cudnn, "conv"):
        chosen = {"convolutions": backends.cudnn.conv, "matrix products": backends.cuda.matmul}
        return [(kind, one.fp32_precision == "tf32") for kind, one in chosen.items()]
    return [
        ("convolutions", bool(backends.cudnn.allow_tf32)),
        ("matrix products", bool(backends.cuda.matmul.allow_tf32)),
    ]
