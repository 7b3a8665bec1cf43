"""Print at the end of `torchport run` which NPUs each process of the script has used.

The first Python of a run is the collector. The other processes append reports to a file in its memory; TORCHPORT_USED
has the path. A process without a collector (started by `bash train.sh`, or left behind) prints a line of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

from torchport.on_import import before_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from torchport.record.use_reports import Report
    from torchport.results.port import Card
    from torchport.results.used_devices import UsedDevice

VARIABLE = "TORCHPORT_USED"
FIRST = "1"  # its value for the Python that is to collect; for others it is the path
_NAME = "torchport-used"
_LEAST = 200  # descriptor of that file: a program counts on the small ones
_process: _Process | None = None


def say_at_exit() -> None:
    """Print at the end of this run, in one line on stderr, which NPUs its processes have used.

    Nothing is printed if no process has imported torch, or if a signal or `os._exit` ends the collector. Call it before
    torch is imported: the handler that is registered first runs last, when torch_npu has waited for its devices.
    """
    global _process
    if _process is None:
        _process = _Process(os.environ[VARIABLE])
        _process.start()


def count_step(devices: Iterable[int]) -> None:
    """Count an optimizer step of this process, in which operators have run on `devices`."""
    if _process is not None:
        _process.count_step(devices)


class _Process:
    """The NPUs that this process has used; in the collector, the reports of the others too."""

    def __init__(self, place: str) -> None:
        self._process = os.getpid()
        self._collects = place == FIRST or place.startswith(f"/proc/{self._process}/")  # the latter after os.exec
        self._place = place
        self._torch = False
        self._cards: list[Card] = []
        self._steps = 0
        self._steps_on: dict[int, int] = {}
        self._over = False

    def start(self) -> None:
        """Hook into the end of this process, and into the import of torch."""
        if self._collects:
            self._place = _make_file()
            if self._place:
                os.environ[VARIABLE] = self._place
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._forked)
        before_import(("torch", "torch_npu"), self._begin)

    def count_step(self, devices: Iterable[int]) -> None:
        """An optimizer step is over, and operators have run on `devices` in it."""
        self._steps += 1
        for device in devices:
            self._steps_on[device] = self._steps_on.get(device, 0) + 1

    def _begin(self) -> None:
        import threading

        self._torch = True
        if not self._collects:
            self._tell(None)
        threading._register_atexit(self._look)  # type: ignore[attr-defined]  # before torch_npu ends its devices

    def _forked(self) -> None:
        self._process = os.getpid()
        self._collects = False
        if self._torch:
            from torchport import vnpu

            # The child has the parent's counts and cannot use a device that the parent has opened.
            self._over = self._over or bool(vnpu.launches_by_device())

    def _look(self) -> None:
        from torchport import vnpu
        from torchport.record.cards import list_opened_cards

        torch = sys.modules.get("torch")
        if torch is not None and not (self._over or _ended_by_signal()) and vnpu.launches_by_device() is None:
            with contextlib.suppress(RuntimeError):  # of a device that has failed
                self._cards = list_opened_cards(torch)
        processes = sys.modules.get("multiprocessing.process")
        if processes is not None and processes.parent_process() is not None:
            self._end()  # such a process ends without exit handlers

    def _end(self) -> None:
        if self._over or os.getpid() != self._process or _ended_by_signal():
            return
        self._over = True
        if self._collects:
            self._say(self._read())
        elif self._torch and not self._tell(self._list_devices()):
            self._say([])

    def _say(self, told: list[bytes]) -> None:
        if not self._torch and not told:
            return
        from torchport.record.use_reports import Report, merge_reports
        from torchport.results.used_devices import format_used_devices

        own = [self._report(self._list_devices())] if self._torch else []
        uses = merge_reports([*own, *map(Report.from_line, told)])
        if uses:
            _write(f"{format_used_devices(uses)}\n")

    def _report(self, devices: tuple[UsedDevice, ...] | None) -> Report:
        from torchport.record.use_reports import Report

        return Report(self._process, _rank(), devices)

    def _list_devices(self) -> tuple[UsedDevice, ...]:
        from torchport import vnpu
        from torchport.record.cards import number_of
        from torchport.results.used_devices import UsedDevice

        counts = vnpu.launches_by_device()
        if counts is None:
            return tuple(UsedDevice(card.device, card.number) for card in self._cards)
        return tuple(
            UsedDevice(
                f"npu:{device}",
                number_of(device),
                counts[device],
                (self._steps_on.get(device, 0), self._steps) if self._steps and counts[device] else None,
            )
            for device in sorted(counts, key=lambda device: (-counts[device], device))
        )

    def _tell(self, devices: tuple[UsedDevice, ...] | None) -> bool:
        """Whether the process that collects has got `devices`; None for a process that begins."""
        line = self._report(devices).to_line()
        try:
            if not _is_ours(self._place):
                return False
            descriptor = os.open(self._place, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:  # the process is gone
            return False
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
        return True

    def _read(self) -> list[bytes]:
        try:
            if not _is_ours(self._place):
                return []
            with open(self._place, "rb") as file:
                return file.readlines()
        except OSError:  # the script has closed all descriptors, or there never was a file
            return []


def _rank() -> int | None:
    """This process's rank, as its launcher or torch.distributed tells; None if it is the only one."""
    rank = os.environ.get("RANK", "")
    if rank.isdigit():
        return None if os.environ.get("WORLD_SIZE") == "1" else int(rank)
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return None if distributed.get_world_size() == 1 else int(distributed.get_rank())
    return None


def _ended_by_signal() -> bool:
    error = getattr(sys, "last_value", None)
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "SignalException"  # torchrun's


def _make_file() -> str:
    """The path of an empty file in memory that lives as long as this process; "" if the system gives none."""
    import fcntl

    try:
        descriptor = os.memfd_create(_NAME)
    except OSError:
        return ""
    with contextlib.suppress(OSError):  # no such number is allowed
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LEAST)
        os.close(descriptor)
        descriptor = high
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _is_ours(place: str) -> bool:
    """Whether the descriptor is still that file: a script may close all of its descriptors and open others."""
    return os.readlink(place).startswith(f"/memfd:{_NAME}")


def _write(line: str) -> None:
    """Write to the stderr that Python started with, in one piece: the script may have set sys.stderr to its stdout.

    Text that is left in a buffer would change the exit status if nobody reads stderr any more.
    """
    stream = sys.__stderr__
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):  # the reader is gone, or the script has closed it
            stream.flush()
            os.write(stream.fileno(), line.encode())
