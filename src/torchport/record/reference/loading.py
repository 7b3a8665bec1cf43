"""Checkpoints: whatever device they name, they are loaded on the CPU."""

from __future__ import annotations

from typing import Any

from torchport.patches import Patches
from torchport.record.reference.places import device_to_cpu, to_cpu, use_if_cuda


def patch_torch_load(torch: Any, patches: Patches) -> None:
    """Patch torch.load."""

    def load(original: Any) -> Any:
        def call(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            if map_location is None:
                map_location = "cpu"  # what was saved on cuda:0 would look for it
            elif isinstance(map_location, dict):
                for value in map_location.values():
                    use_if_cuda(torch, value)
                map_location = {key: to_cpu(torch, value) for key, value in map_location.items()}
            else:
                use_if_cuda(torch, map_location)
                map_location = device_to_cpu(torch, map_location)
            return original(f, map_location, *args, **kwargs)

        return call

    patches.wrap(torch, "load", load)
    patches.wrap(torch.serialization, "load", load)
