"""Mixed precision: the device type "cuda" of autocast, of its settings and of GradScaler."""

from __future__ import annotations

import inspect
from typing import Any

from torchport.auto.devices import npu_name
from torchport.auto.log import Log
from torchport.patches import Patches


def patch_mixed_precision(torch: Any, patches: Patches, log: Log) -> None:
    """Turn device types into the NPU's; what asks without a type means CUDA, and so the NPU."""

    def typed(owner: Any, name: str, where: str, position: int, default: str = "") -> None:
        """The argument `device_type` (or `device`) of a function, which may be missing if there is a `default`."""

        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                keyword = next((key for key in ("device_type", "device") if key in kwargs), None)
                if keyword is not None:
                    kwargs[keyword] = named(kwargs[keyword])
                elif len(args) > position:
                    args = (*args[:position], named(args[position]), *args[position + 1 :])
                elif default:
                    args = (*args, default)
                return original(*args, **kwargs)

            return call

        def named(device: Any) -> Any:
            name = npu_name(device) if isinstance(device, str) else device
            if name is not device and not torch.compiler.is_compiling():
                log.count_redirected_call(f'{where}("{device}")', f'"{name}"')
            return name

        patches.wrap(owner, name, make)

    typed(torch.amp.autocast_mode.autocast, "__init__", "torch.autocast", 1)
    typed(torch.amp.grad_scaler.GradScaler, "__init__", "torch.amp.GradScaler", 1, "npu")
    for name in ("is_autocast_available", "custom_fwd", "custom_bwd"):
        typed(torch.amp, name, f"torch.amp.{name}", 0)
    typed(torch, "get_autocast_dtype", "torch.get_autocast_dtype", 0)
    typed(torch, "set_autocast_dtype", "torch.set_autocast_dtype", 0)
    typed(torch, "is_autocast_enabled", "torch.is_autocast_enabled", 0, "npu")

    def set_enabled(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if "device_type" in kwargs:
                kwargs["device_type"] = npu_name(kwargs["device_type"])
            elif len(args) == 2:
                args = (npu_name(args[0]), args[1])
            else:
                args = ("npu", *args)
            return original(*args, **kwargs)

        return call

    patches.wrap(torch, "set_autocast_enabled", set_enabled)
    patches.wrap(torch, "get_autocast_gpu_dtype", lambda _: lambda: torch.get_autocast_dtype("npu"))
    patches.wrap(torch, "set_autocast_gpu_dtype", lambda _: lambda dtype: torch.set_autocast_dtype("npu", dtype))

    def fork(original: Any) -> Any:
        signature = inspect.signature(original)

        def fork_rng(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.arguments["device_type"] = npu_name(given.arguments.get("device_type", "cuda"))
            return original(*given.args, **given.kwargs)

        return fork_rng

    patches.wrap(torch.random, "fork_rng", fork)
