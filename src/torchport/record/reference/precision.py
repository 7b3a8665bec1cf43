"""Mixed precision of the script, on the CPU as on a GPU.

The state of autocast for CUDA is torch's own and answers as on a GPU. While it is on, autocast for the CPU is on as
well, with kernels that cast as CUDA's do (`autocast_kernels`). The two device types are one here: scripts and
libraries ask `autocast(tensor.device.type)`, and tensors of the device say "cpu". GradScaler needs no help: torch has
its operators for the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record.reference import autocast_kernels
from torchport.record.reference.places import to_cpu
from torchport.record.reference.tables import replace_functions

CUDA, CPU = "cuda", "cpu"


def patch_autocast(torch: Any, patches: Patches, half: Callable[[], None]) -> None:
    """Patch the state of autocast, its cache of weights, and the casts of custom_fwd.

    `half` is called when autocast is switched on: half precision may begin there.
    """
    get_dtype, set_enabled, set_dtype = (torch.get_autocast_dtype, torch.set_autocast_enabled, torch.set_autocast_dtype)

    def dtype() -> Any:
        return get_dtype(CUDA)

    casts = autocast_kernels.Casts(torch, dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # that kernels are replaced
        # Kept by what is patched: torch drops the kernels with it, and callers may drop `patches`.
        casts.library = autocast_kernels.register_kernels(torch, casts, dtype)
    patches.on_undo(casts.library._destroy)

    def enable(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> None:
            device = kwargs.get("device_type", args[0] if len(args) > 1 else CUDA)
            enabled = kwargs.get("enabled", args[-1] if args else None)
            if device not in (CUDA, CPU) or not isinstance(enabled, bool):
                original(*args, **kwargs)
                return
            if enabled:
                half()
            set_enabled(CUDA, enabled)
            set_enabled(CPU, enabled)

        return call

    def choose(original: Any) -> Any:
        def call(device_type: str, dtype: Any) -> None:
            set_dtype(CUDA if device_type == CPU else device_type, dtype)

        return call

    def chosen(original: Any) -> Any:
        return lambda device_type: get_dtype(CUDA if device_type == CPU else device_type)

    def clear(original: Any) -> Any:
        def call() -> None:
            casts.forget_weights()
            original()

        return call

    def typed(original: Any) -> Any:
        def call(value: Any, device_type: str, dtype: Any) -> Any:
            return original(value, to_cpu(torch, device_type), dtype)

        return call

    def init(original: Any) -> Any:
        def call(this: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
            original(this, CUDA if device_type == CPU else device_type, *args, **kwargs)

        return call

    patches.wrap(torch, "set_autocast_enabled", enable)
    patches.wrap(torch, "set_autocast_dtype", choose)
    patches.wrap(torch, "get_autocast_dtype", chosen)
    patches.wrap(torch, "clear_autocast_cache", clear)
    patches.wrap(torch.amp.autocast_mode, "_cast", typed)
    patches.wrap(torch.amp.autocast_mode.autocast, "__init__", init)
    replace_functions(  # the old names
        patches,
        torch,
        {
            "get_autocast_gpu_dtype": dtype,
            "get_autocast_cpu_dtype": dtype,
            "set_autocast_gpu_dtype": lambda value: set_dtype(CUDA, value),
            "set_autocast_cpu_dtype": lambda value: set_dtype(CUDA, value),
            "set_autocast_cpu_enabled": lambda value: torch.set_autocast_enabled(CUDA, value),
            "is_autocast_cpu_enabled": lambda: torch.is_autocast_enabled(CUDA),
        },
    )


def switch_off(torch: Any, patches: Patches) -> None:
    """Make autocast and GradScaler for CUDA do nothing."""

    def autocast(original: Any) -> Any:
        def init(
            this: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **kwargs: Any
        ) -> None:
            if to_cpu(torch, device_type) != device_type:
                device_type, dtype, enabled = CPU, None, False
            original(this, device_type, dtype, enabled, *args, **kwargs)

        return init

    def scaler(original: Any) -> Any:
        def init(this: Any, device: str = CUDA, *args: Any, **kwargs: Any) -> None:
            original(this, CPU, enabled=False)

        return init

    patches.wrap(torch.amp.autocast_mode.autocast, "__init__", autocast)
    patches.wrap(torch.amp.grad_scaler.GradScaler, "__init__", scaler)
