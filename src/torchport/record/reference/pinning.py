"""Pinned memory: a copy, as on a GPU, that says that it is pinned."""

from __future__ import annotations

import weakref
from typing import Any

from torchport.patches import Patches


def patch_pinning(torch: Any, patches: Patches) -> None:
    """Patch `pin_memory` and `is_pinned` of tensors."""
    # By identity: tensors compare by elements. A number is free again once its tensor is gone from here.
    pinned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def is_pinned(this: Any, device: Any = None) -> bool:
        return pinned.get(id(this)) is this

    def pin_memory(this: Any, device: Any = None) -> Any:
        if is_pinned(this):
            return this
        copy = this.detach().clone()
        pinned[id(copy)] = copy
        return copy

    patches.wrap(torch.Tensor, "pin_memory", lambda _: pin_memory)
    patches.wrap(torch.Tensor, "is_pinned", lambda _: is_pinned)
