"""Packages, flags and settings of torch as a run computes in them: when the script has set and imported them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from torchport.record.part import Part

MOST = 500  # packages


class Surroundings(Part):
    """Records an event `surroundings` after the first step, or at the end of a script without one."""

    def __init__(self, torch: Any, write: Callable[..., None]) -> None:
        self._torch = torch
        self._write = write
        self._told = False

    def step_done(self) -> None:
        """The script has chosen by now."""
        if not self._told:
            self._told = True
            self._write("surroundings", flags=collect_flags(self._torch), packages=collect_packages())

    finish = step_done


def collect_flags(torch: Any) -> dict[str, Any]:
    """Settings of torch that change numbers, by the name of what reads them; one that raises is left out."""
    backends = torch.backends
    asked: dict[str, Callable[[], Any]] = {
        "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled,
        "torch.get_default_dtype": torch.get_default_dtype,
        "torch.get_float32_matmul_precision": torch.get_float32_matmul_precision,
        "torch.get_num_threads": torch.get_num_threads,
        "torch.is_anomaly_enabled": torch.is_anomaly_enabled,
        "torch.backends.cudnn.benchmark": lambda: backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": lambda: backends.cudnn.deterministic,
        "torch.backends.cudnn.enabled": lambda: backends.cudnn.enabled,
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": (
            lambda: backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": (
            lambda: backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "torch.backends.cuda.flash_sdp_enabled": lambda: backends.cuda.flash_sdp_enabled(),
        "torch.backends.cuda.math_sdp_enabled": lambda: backends.cuda.math_sdp_enabled(),
        "torch.backends.cuda.mem_efficient_sdp_enabled": lambda: backends.cuda.mem_efficient_sdp_enabled(),
    }
    # The old names of TF32 raise where a script has used the new ones of torch 2.9; older releases have no new ones.
    if hasattr(backends.cudnn, "conv"):
        asked["torch.backends.cudnn.conv.fp32_precision"] = lambda: backends.cudnn.conv.fp32_precision
        asked["torch.backends.cuda.matmul.fp32_precision"] = lambda: backends.cuda.matmul.fp32_precision
    else:
        asked["torch.backends.cudnn.allow_tf32"] = lambda: backends.cudnn.allow_tf32
        asked["torch.backends.cuda.matmul.allow_tf32"] = lambda: backends.cuda.matmul.allow_tf32
    found: dict[str, Any] = {}
    for name, ask in asked.items():
        with contextlib.suppress(Exception):  # of a build that lacks the library
            value = ask()
            found[name] = value if isinstance(value, (bool, int, str)) else str(value).removeprefix("torch.")
    return found


def collect_packages() -> dict[str, str]:
    """The versions of the packages that were imported, as they say them."""
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names or len(found) >= MOST:
            continue
        with contextlib.suppress(Exception):  # of a module that computes its attributes
            version = vars(module).get("__version__")
            if isinstance(version, str):
                found[name] = version
    return dict(sorted(found.items()))
