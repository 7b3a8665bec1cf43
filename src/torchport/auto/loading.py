"""`torch.load`: checkpoints name the device that they were saved on, and scripts say where it should go instead.

Paths are never looked at. What is saved under `torchport run` names the NPU: any torch_npu can load it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.auto.devices import cuda_name, npu_name
from torchport.patches import Patches


def patch_torch_load(torch: Any, patches: Patches) -> None:
    """Read CUDA names in checkpoints and in `map_location`, of each kind that torch.load takes."""
    serialization = torch.serialization

    def default(original: Any) -> Any:
        def restore(storage: Any, location: Any) -> Any:
            return original(storage, _npu(location))

        return restore

    def choose(original: Any) -> Any:
        def get(map_location: Any) -> Any:
            if isinstance(map_location, dict):
                # A checkpoint of a GPU says cuda:0, one of an NPU npu:0; the script may name either.
                known = {_npu(key): value for key, value in map_location.items()}
                return original({**known, **{cuda_name(key): value for key, value in known.items()}})
            if map_location is None or isinstance(map_location, (str, bytes, torch.device)):
                return original(map_location)
            return original(_seen_by_script(map_location))

        return get

    patches.wrap(serialization, "default_restore_location", default)
    patches.wrap(serialization, "_get_restore_location", choose)


def _npu(location: Any) -> Any:
    return npu_name(location) if isinstance(location, str) else location


def _seen_by_script(function: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def locate(storage: Any, location: str) -> Any:
        return function(storage, cuda_name(location))

    return locate
