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
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from torchport.launch import host_memory
from torchport.on_import import after_import
from torchport.predict.loading import Loading
from torchport.predict.owners import Owners
from torchport.predict.reads import OURS, Reads
from torchport.predict.trials import apply_trial
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

    def to_variable(self) -> str:
        """The value of TORCHPORT_PREDICT."""
        return json.dumps(dataclasses.asdict(self))


def start_noting() -> None:
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
        self._begin: Any = None
        self._steps: list[Any] = []
        self._compiled = False
        self._elsewhere = 0  # steps of an optimizer before anything was on the NPU
        self._walls: list[float] = []
        self._processor: list[float] = []
        self._reads = Reads()
        self._done = False
        self._error: dict[str, Any] | None = None
        self._torch: Any = None
        self._hook, sys.excepthook = sys.excepthook, self._failed
        atexit.register(self._leave)

    def install(self, torch: Any) -> None:
        """Called once torch is there, and torch_npu with it."""
        if not hasattr(torch, "npu"):
            return
        self._torch = torch
        self._owners = Owners(torch)
        self._reads.install(torch)
        self._unfilled = Unfilled(torch)
        self._loading = Loading()
        apply_trial(torch, self._options.trial)
        self._compile, torch.compile = torch.compile, self._noted_compile
        from torch.optim import optimizer

        self._forward = torch.nn.modules.module.register_module_forward_pre_hook(self._first)
        optimizer.register_optimizer_step_pre_hook(self._before)
        optimizer.register_optimizer_step_post_hook(self._after)
        atexit.register(self._leave)  # before torch_npu gives the device back
        # Who waits for the script has lost patience, or the machine its memory.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._stopped)

    def _noted_compile(self, *args: Any, **kwargs: Any) -> Any:
        self._compiled = True
        return self._compile(*args, **kwargs)

    def _first(self, *_: Any) -> None:
        """The first step begins; what the script has done before is none."""
        if self._torch.npu.is_initialized():
            self._begin = self._mark()
            self._forward.remove()

    def _mark(self) -> Any:
        event = self._torch.npu.Event(enable_timing=True)
        event.record()
        return event

    def _before(self, optimizer: Any, *_: Any) -> None:
        self._owners.before_step(optimizer)

    def _after(self, optimizer: Any, *_: Any) -> None:
        if self._done or os.getpid() != self._process:
            return
        if not self._owners.count_allocations():
            self._elsewhere += 1
            if self._elsewhere >= self._options.steps:
                self._finish()
            return
        self._owners.after_step(optimizer)
        if self._main is None:
            self._main = id(optimizer)
        if id(optimizer) != self._main:
            return
        self._owners.step_done()
        self._steps.append(self._mark())
        self._walls.append(time.monotonic())
        self._processor.append(time.process_time())
        if len(self._steps) >= self._options.steps:
            self._finish()

    def _failed(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        frames = [
            frame
            for frame in traceback.extract_tb(trace)
            if "site-packages" not in frame.filename and not frame.filename.startswith((OURS, "<"))
        ]
        last = frames[-1] if frames else None
        self._error = {
            "type": kind.__name__,
            "text": _sentence("".join(traceback.format_exception_only(error)).strip().splitlines()),
            "where": f"{last.filename}:{last.lineno}" if last else "",
            "out_of_memory": kind.__name__ == "OutOfMemoryError",
        }
        self._hook(kind, error, trace)

    def _stopped(self, *_: Any) -> None:
        """Leave what needs neither time nor memory, and end: this process is about to be killed."""
        if not self._done and os.getpid() == self._process:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which follows soon
            self._done = True
            self._write([], 0.0, None)
        os._exit(1)

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
        if torch is None:  # it has not come that far
            if self._error:
                self._write([], 0.0, None)
            return
        used = torch.npu.is_initialized()
        begin, marks = 0.0, []
        try:
            if used:
                torch.npu.synchronize()
            # Microseconds of the model.
            begin = float(self._begin.recorded_time()) if self._begin else 0.0
            marks = [float(event.recorded_time()) for event in self._steps]
        except RuntimeError as error:  # what an operator has failed with
            text = _sentence(str(error).splitlines())
            failed = {"type": "RuntimeError", "text": text, "where": "", "out_of_memory": False}
            self._error = self._error or failed
        _flush()
        self._write(marks, begin, self._owners.collect_notes() if used else None)

    def _write(self, marks: list[float], begin: float, memory: dict[str, Any] | None) -> None:
        notes = {
            "rank": int(os.environ.get("RANK") or 0),
            "world": int(os.environ.get("WORLD_SIZE") or 1),
            "begin": begin,
            "marks": marks,
            "walls": self._walls,
            "processor": self._processor,
            "seconds": time.monotonic() - self._began,
            "most_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "held": host_memory.measure_process_memory([os.getpid()]),
            "reads": self._reads.list_reads(),
            "loading": self._loading.collect_notes() if self._torch else None,
            "unknown_reads": _count("vnpuUnknownReads") if self._torch else 0,
            "unfilled": self._unfilled.bytes if self._torch else 0,
            "unfilled_read": self._unfilled.read if self._torch else 0,
            "elsewhere": self._elsewhere,
            "compiled": self._compiled,
            "error": self._error,
            "memory": memory,
        }
        place = Path(self._options.out, f"{NOTES}-{self._process}.json")
        part = place.with_suffix(".part")
        part.write_text(json.dumps(notes), encoding="utf-8")
        part.replace(place)


def _sentence(lines: list[str]) -> str:
    """The first line of an error, and what the virtual NPU says of the cause in one of the others."""
    cause = next((line for line in lines[1:] if "[virtual NPU" in line), "")
    return f"{lines[0]}: {cause.partition('): ')[2]}" if cause else lines[0]


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
