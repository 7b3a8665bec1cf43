"""Where the parameters and buffers of a module are that the script calls, whether or not an optimizer has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any


class Placed:
    """Writes an event `placed` at the first call of each site; `name_device` gives a tensor's type of device, in a
    reference the one that the script asked for."""

    def __init__(self, write: Callable[..., None], name_device: Callable[[Any], str]) -> None:
        self._write = write
        self._name_device = name_device
        self._sites: set[str] = set()

    def record_call(self, site: str, module: Any) -> None:
        """`module` was called at `site`."""
        if site in self._sites:
            return
        self._sites.add(site)
        names: dict[str, list[str]] = {"cuda": [], "cpu": []}
        for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
            names.setdefault(self._name_device(tensor), []).append(name)
        self._write("placed", site=site, cuda=names["cuda"], cpu=names["cpu"])


def name_own_device(tensor: Any) -> str:
    """The type of the device where a tensor is."""
    return str(tensor.device.type)
