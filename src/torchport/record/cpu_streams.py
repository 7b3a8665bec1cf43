"""Streams and events of a device that does everything at once: the CPU as a script's CUDA device.

Work is done when the call that asks for it returns, so waiting never waits. Events measure host time.
"""

from __future__ import annotations

import time
from typing import Any


class Stream:
    """Stands for `torch.cuda.Stream`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.priority = kwargs.get("priority", 0)
        self.device_index = 0
        self.stream_id = self.cuda_stream = 0

    @property
    def device(self) -> Any:
        """The device that the script believes it is on."""
        import torch  # it is loaded: only a script that has it gets here

        return torch.device("cuda", self.device_index)

    def synchronize(self) -> None:
        """Everything asked for is done already."""

    def wait_stream(self, stream: Any) -> None:
        """Everything asked for is done already."""

    def wait_event(self, event: Any) -> None:
        """Everything asked for is done already."""

    def query(self) -> bool:
        """Always True: nothing is pending."""
        return True

    def is_capturing(self) -> bool:
        """Always False: there are no graphs."""
        return False

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one, now."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


class Event:
    """Stands for `torch.cuda.Event`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        """Remember the time."""
        self._time = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Everything asked for is done already."""

    def synchronize(self) -> None:
        """Everything asked for is done already."""

    def query(self) -> bool:
        """Always True: nothing is pending."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds of host time from this event to `end`."""
        return (end._time - self._time) * 1e3


class StreamContext:
    """Stands for `torch.cuda.stream(stream)`; None changes nothing, as on a GPU."""

    default = Stream()
    current = default

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._previous = StreamContext.current
        StreamContext.current = self._stream or self._previous

    def __exit__(self, *error: Any) -> None:
        StreamContext.current = self._previous
