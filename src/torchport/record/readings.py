"""Events whose numbers the device still computes, written in order when it is waited for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from torchport.record import releases

Write = Callable[[list[list[float]]], object]


class Readings:
    """Keeps events with the tensors that they need, and reads all those tensors at once: one copy for each device.

    An event without tensors waits only behind others, so that a journal has its events in the order in which they
    happened. Tensors are read as they are at the time of `flush`: give one that nobody changes. Floating point only.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._waiting: list[tuple[list[Any], Write]] = []
        self._process = os.getpid()

    def schedule_write(self, tensors: Iterable[Any], write: Write) -> None:
        """Call `write` with the values of each of `tensors`: now where nothing has to be waited for, else at the next
        `flush`."""
        tensors = list(tensors)
        if self._waiting or any(tensor.device.type != "cpu" for tensor in tensors):
            self._waiting.append((tensors, write))
        else:
            write([self._wide(tensor).tolist() for tensor in tensors])

    def can_read(self) -> bool:
        """Whether numbers can be read here: not inside a function transform, a compiler, or a graph being captured."""
        torch = self._torch
        return not (releases.is_compiling(torch) or releases.is_within_transform(torch) or releases.is_capturing(torch))

    def flush(self) -> None:
        """Wait for the device and write what is waiting."""
        waiting, self._waiting = self._waiting, []
        if not waiting or os.getpid() != self._process:  # a forked child has no device
            return
        values = self._values([tensor for tensors, _ in waiting for tensor in tensors])
        place = 0
        for tensors, write in waiting:
            write(values[place : place + len(tensors)])
            place += len(tensors)

    def _values(self, tensors: list[Any]) -> list[list[float]]:
        values: list[list[float]] = [[] for _ in tensors]
        groups: dict[Any, list[int]] = {}
        wide = [self._wide(tensor) for tensor in tensors]
        for index, tensor in enumerate(wide):
            groups.setdefault((tensor.device, tensor.dtype), []).append(index)
        for indexes in groups.values():
            read = self._torch.cat([wide[index] for index in indexes]).cpu().tolist()
            for index in indexes:
                values[index], read = read[: wide[index].numel()], read[wide[index].numel() :]
        return values

    def _wide(self, tensor: Any) -> Any:
        half = tensor.dtype in (self._torch.float16, self._torch.bfloat16)
        return (tensor.detach().float() if half else tensor.detach()).reshape(-1)
