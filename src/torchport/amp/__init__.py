"""Mixed precision with the interface of NVIDIA's apex.amp, on the NPU and on the CPU.

    from torchport import amp                       # `from apex import amp` under `torchport run`
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", combine_grad=True)
    ...
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()

Importing this package does not import torch; the first use of a name does.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "torchport.amp.frontend": ("initialize", "scale_loss", "master_params", "state_dict", "load_state_dict"),
    "torchport.amp.casting": (
        "disable_casts",
        "float_function",
        "half_function",
        "promote_function",
        "register_float_function",
        "register_half_function",
        "register_promote_function",
    ),
}

__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
