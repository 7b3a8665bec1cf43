"""Weights that a script makes on the CPU get no values in a dry run: pages that nothing writes take no memory.

Large tensors come from the system as zeros that are not there yet; filling them with random numbers is what takes 25 GB
and minutes for a model of 7 billion parameters. On their way to the device they are counted, not copied, so no kernel
could tell. What the script itself reads of them on the CPU is zero; the report says how much was left out.
"""

from __future__ import annotations

from typing import Any

# Below this a fill costs nothing, and the copy to the device would carry it.
LARGE = 1 << 20
_INITIALISERS = (
    "uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
    "kaiming_normal_", "orthogonal_",
)  # fmt: skip
_METHODS = ("normal_", "uniform_")


class Unfilled:
    """Leaves out the random initialisation of large tensors on the CPU; `bytes` counts each of them once."""

    def __init__(self, torch: Any) -> None:
        self.bytes = 0
        self._seen: set[int] = set()
        for name in _INITIALISERS:
            setattr(torch.nn.init, name, self._leaving(getattr(torch.nn.init, name)))
        for name in _METHODS:
            setattr(torch.Tensor, name, self._leaving(getattr(torch.Tensor, name)))

    def _leaving(self, original: Any) -> Any:
        def fill(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            size = tensor.numel() * tensor.element_size()
            if tensor.device.type != "cpu" or size < LARGE:
                return original(tensor, *args, **kwargs)
            address = tensor.data_ptr()
            if address not in self._seen:
                self._seen.add(address)
                self.bytes += size
            return tensor

        return fill
