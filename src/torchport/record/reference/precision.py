"""Mixed precision of the script, on the CPU as on a GPU."""

from __future__ import annotations

from typing import Any

from torchport.patches import Patches
from torchport.record.reference.places import to_cpu


def patch(torch: Any, patches: Patches) -> None:
    pass


def switch_off(torch: Any, patches: Patches) -> None:
    """Make autocast and GradScaler for CUDA do nothing."""

    def autocast(original: Any) -> Any:
        def init(
            this: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **kwargs: Any
        ) -> None:
            if to_cpu(torch, device_type) != device_type:
                device_type, dtype, enabled = "cpu", None, False
            original(this, device_type, dtype, enabled, *args, **kwargs)

        return init

    def scaler(original: Any) -> Any:
        def init(this: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
            original(this, "cpu", enabled=False)

        return init

    patches.wrap(torch.amp.autocast_mode.autocast, "__init__", autocast)
    patches.wrap(torch.amp.grad_scaler.GradScaler, "__init__", scaler)
