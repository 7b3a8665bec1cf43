"""Weights that a script makes on the CPU get no values in a dry run: pages that nothing writes take no memory.

Large tensors come from the system as zeros that are not there yet; filling them with random numbers is what takes 25 GB
and minutes for a model of 7 billion parameters. On their way to the device they are counted, not copied, and brought
into another dtype without being read, so no kernel could tell. Whether the script itself has read one on the CPU, where
it is zero, the kernel of this machine knows: the page is there then. The report says so.
"""

from __future__ import annotations

import mmap
from typing import Any

# Below this a fill costs nothing, and the copy to the device would carry it.
LARGE = 1 << 20
_INITIALISERS = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
)
_METHODS = ("normal_", "uniform_")
_CASTS = ("half", "bfloat16", "float", "double")
# The highest bit of an entry of /proc/self/pagemap, in its last byte (Documentation/admin-guide/mm/pagemap.rst).
_PRESENT = 1 << 7


class Unfilled:
    """Leaves out the random initialisation of large tensors on the CPU; `bytes` counts each of them once."""

    def __init__(self, torch: Any) -> None:
        self.bytes = 0
        self.read = 0  # of those, what the script has read or written itself
        self._torch = torch
        self._sizes: dict[int, int] = {}
        for name in _INITIALISERS:
            setattr(torch.nn.init, name, self._leaving(getattr(torch.nn.init, name)))
        for name in _METHODS:
            setattr(torch.Tensor, name, self._leaving(getattr(torch.Tensor, name)))
        for name in _CASTS:
            setattr(torch.Tensor, name, self._casting(getattr(torch.Tensor, name), getattr(torch, name)))
        torch.Tensor.to = self._moving(torch.Tensor.to)
        torch.nn.Module._apply = self._looking(torch.nn.Module._apply)

    def _leaving(self, original: Any) -> Any:
        def fill(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not _large(tensor):
                return original(tensor, *args, **kwargs)
            if self._note(tensor):
                self.bytes += _size(tensor)
            return tensor

        return fill

    def _casting(self, original: Any, dtype: Any) -> Any:
        def cast(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not args and not kwargs and self._empty(tensor):
                return self._like(tensor, dtype)
            return original(tensor, *args, **kwargs)

        return cast

    def _moving(self, original: Any) -> Any:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._empty(tensor) and not kwargs.get("copy"):
                # Casts would read it on the CPU, on its way to the device too.
                dtype = self._torch._C._nn._parse_to(*args, **kwargs)[1]
                if dtype is not None and dtype != tensor.dtype:
                    tensor = self._like(tensor, dtype)
            return original(tensor, *args, **kwargs)

        return to

    def _looking(self, original: Any) -> Any:
        def apply(module: Any, *args: Any, **kwargs: Any) -> Any:
            for parameter in module._parameters.values():
                if parameter is not None and self._known(parameter) and not _unread(parameter):
                    del self._sizes[parameter.data_ptr()]
                    self.read += _size(parameter)
            return original(module, *args, **kwargs)

        return apply

    def _note(self, tensor: Any) -> bool:
        """Whether it was not known before."""
        new = not self._known(tensor)
        self._sizes[tensor.data_ptr()] = _size(tensor)
        return new

    def _known(self, tensor: Any) -> bool:
        return _large(tensor) and self._sizes.get(tensor.data_ptr()) == _size(tensor)

    def _empty(self, tensor: Any) -> bool:
        """Whether nothing has touched it, nor can its values be asked for by autograd."""
        return self._known(tensor) and not (tensor.requires_grad and self._torch.is_grad_enabled()) and _unread(tensor)

    def _like(self, tensor: Any, dtype: Any) -> Any:
        made = self._torch.empty_like(tensor, dtype=dtype, requires_grad=False)
        if _large(made):
            self._note(made)
        return made


def _unread(tensor: Any) -> bool:
    return is_untouched(tensor.data_ptr(), _size(tensor))


def is_untouched(address: int, size: int) -> bool:
    """Whether this process has never read nor written that memory, but for its first and last page.

    False where the kernel does not say (no /proc)."""
    first, last = -(-address // mmap.PAGESIZE) + 1, (address + size) // mmap.PAGESIZE - 1
    if last <= first:
        return False
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:
            pages.seek(8 * first)
            entries = pages.read(8 * (last - first))
    except OSError:
        return False
    return max(entries[7::8], default=0) < _PRESENT


def _large(tensor: Any) -> bool:
    # Not a tensor of another kind (FakeTensor): those have no address.
    plain = type(tensor).__name__ in ("Tensor", "Parameter")
    return plain and tensor.device.type == "cpu" and _size(tensor) >= LARGE


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
