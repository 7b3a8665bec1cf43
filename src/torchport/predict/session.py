"""One process of a script that is predicted: what Python does at its start where TORCHPORT_PREDICT is set.

Notes the ends of steps on the virtual clock, what the allocator did and for whom, and each line that read a value of
the device. After the steps that were asked for the process leaves its notes and ends, whatever its script would do.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from torchport.on_import import after_import
from torchport.predict.owners import Owners
from torchport.predict.reads import Reads
from torchport.predict.trials import apply
from torchport.predict.unfilled import Unfilled

VARIABLE = "TORCHPORT_PREDICT"
NOTES = "notes"
_session: Session | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """`out` is the folder for the notes, `steps` how many steps are run, `trial` what is tried differently (trials)."""

    out: str
    steps: int
    trial: str = ""

    def variable(self) -> str:
        """The value of TORCHPORT_PREDICT."""
        return json.dumps(dataclasses.asdict(self))


def start() -> None:
    """Note this process as TORCHPORT_PREDICT says. Doing so again does nothing."""
    global _session
    if _session is None:
        _session = Session(Options(**json.loads(os.environ[VARIABLE])))
        after_import("torch", _session.install)


class Session:
    """The notes of one process; `install` hooks into torch."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._process = os.getpid()
        self._began = time.monotonic()
        self._main: int | None = None
        self._steps: list[Any] = []
        self._walls: list[float] = []
        self._reads = Reads()
        self._done = False
        self._error: dict[str, Any] | None = None

    def install(self, torch: Any) -> None:
        """Called once torch is there, and torch_npu with it."""
        if not hasattr(torch, "npu"):
            return
        self._torch = torch
        self._owners = Owners(torch)
        self._reads.install(torch)
        self._unfilled = Unfilled(torch)
        apply(torch, self._options.trial)
        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self._before)
        optimizer.register_optimizer_step_post_hook(self._after)
        hook, sys.excepthook = sys.excepthook, self._failed
        self._hook = hook
        atexit.register(self._leave)

    def _before(self, optimizer: Any, *_: Any) -> None:
        self._owners.before_step(optimizer)

    def _after(self, optimizer: Any, *_: Any) -> None:
        if self._done or os.getpid() != self._process:
            return
        self._owners.after_step(optimizer)
        if self._main is None:
            self._main = id(optimizer)
        if id(optimizer) != self._main:
            return
        event = self._torch.npu.Event(enable_timing=True)
        event.record()
        self._steps.append(event)
        self._walls.append(time.monotonic())
        if len(self._steps) >= self._options.steps:
            self._finish()

    def _failed(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        frames = [frame for frame in traceback.extract_tb(trace) if "site-packages" not in frame.filename]
        last = frames[-1] if frames else None
        self._error = {
            "type": kind.__name__,
            "text": "".join(traceback.format_exception_only(error)).strip().splitlines()[0],
            "where": f"{last.filename}:{last.lineno}" if last else "",
            "out_of_memory": kind.__name__ == "OutOfMemoryError",
        }
        self._hook(kind, error, trace)

    def _finish(self) -> None:
        """The steps that were asked for are over, and with them the script."""
        self._leave()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _leave(self) -> None:
        if self._done or os.getpid() != self._process:
            return
        self._done = True
        torch = self._torch
        used = torch.npu.is_initialized()
        try:
            if used:
                torch.npu.synchronize()
            # Microseconds of the model.
            marks = [float(event.recorded_time()) for event in self._steps]
        except RuntimeError as error:  # what an operator has failed with
            self._error = self._error or {"type": "RuntimeError", "text": str(error).splitlines()[0], "where": "",
                                          "out_of_memory": False}  # fmt: skip
            marks = []
        _flush()
        notes = {
            "rank": int(os.environ.get("RANK") or 0),
            "world": int(os.environ.get("WORLD_SIZE") or 1),
            "marks": marks,
            "walls": [wall - self._began for wall in self._walls],
            "seconds": time.monotonic() - self._began,
            "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "reads": self._reads.listed(),
            "unknown_reads": _count("vnpuUnknownReads"),
            "unfilled": self._unfilled.bytes,
            "error": self._error,
            "memory": self._owners.notes() if used else None,
        }
        place = Path(self._options.out, f"{NOTES}-{self._process}.json")
        part = place.with_suffix(".part")
        part.write_text(json.dumps(notes), encoding="utf-8")
        part.replace(place)


def _library() -> Any:
    return ctypes.CDLL("libvnpu.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)


def _flush() -> None:
    try:
        function = _library()["vnpuTimelineFlush"]
    except (OSError, AttributeError):
        return  # hardware
    function.restype = None
    function()


def _count(name: str) -> int:
    try:
        function = _library()[name]
    except (OSError, AttributeError):
        return 0
    function.restype = ctypes.c_uint64
    return int(function())
