"""A run's operators as a part of its recording: a file for each step, and a line in the journal when it is whole."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchport import __version__, vnpu
from torchport.record import quiet
from torchport.record.operators import layout
from torchport.record.operators.ring import Ring, describe_overflow
from torchport.record.operators.scopes import Scopes, list_wrapped_modules
from torchport.record.operators.tables import StepTables
from torchport.record.operators.wanted import DROP, Wanted
from torchport.record.operators.writing import Writer
from torchport.record.part import Part
from torchport.record.recording import JOURNAL, PROCESSES, Journal, read_journal
from torchport.record.sites import Sites

FORESEEN = 1000  # steps
VIRTUAL = "virtual: ATen's kernels of this CPU, as CANN's operators call for (GELU in its tanh form)"
# Which recorder, for tests and for a look at what each costs: "mode", "reductions", "alone" (calls without
# statistics); else the best there is.
CHOICE = "TORCHPORT_RECORDER"
WITHOUT = "without"  # in `about`: why the library could not be used


class Full(SystemExit):
    """The run ends because its recording cannot be written, as --on-full stop says."""


class OperatorsPart(Part):
    """Records from `install` to `finish`; steps are told as to every part.

    `recorder` is a `mode.ModeRecorder` or a `hook.HookRecorder`; `rank()` gives the process's, None without one.
    """

    def __init__(
        self,
        torch: Any,
        recorder: Any,
        wanted: Wanted,
        root: Path,
        journal: Journal,
        rank: Callable[[], int | None],
        about: Mapping[str, Any],
        say: Callable[[str], object] | None = None,
    ) -> None:
        self._torch = torch
        self._recorder = recorder
        self._wanted = wanted
        self._root = root
        self._journal = journal
        self._rank = rank
        self._about = about
        self._say = say or (lambda text: print(f"torchport: {text}", file=sys.stderr))
        self._process = os.getpid()
        self._scopes = Scopes(torch, recorder, self._learned)
        self._writer: Writer | None = None
        self._step = 0
        self._told = False
        self._ended = False
        self._finished = False
        self._lost = 0
        self._wrote = 0
        self._ring = None if wanted.keep_last is None else Ring(wanted.keep_last, self._left_out, self._dropped)
        self._computes = _computes(torch)

    def install(self) -> None:
        """Begin to record."""
        # Now, as a first step may have more than memory is to hold.
        self._writer = Writer(
            self._recorder,
            self._root / layout.FOLDER,
            f"process-{self._process}.h5",
            self._folder,
            self._described,
            self._written,
            self._wanted.max_bytes,
        )
        self._scopes.install()
        self._recorder.start()
        quiet.add_listener(self._recorder.quiet)
        # For a process that ends without telling us: nothing of ours may run while the interpreter is taken apart.
        atexit.register(self.finish)

    def _learned(self, module: Any) -> None:
        module = list_wrapped_modules(module)[-1]
        with self._recorder.quiet():
            self._recorder.name_tensors(
                (name, tensor)
                for named in (module.named_parameters(), module.named_buffers())
                for name, tensor in named
                if tensor.layout == self._torch.strided and tensor.device.type != "meta"
            )

    def on_step_begin(self, optimizer: Any, number: int, step: int, closure: bool) -> None:
        """An optimizer's operators follow."""
        self._recorder.optimizing(not closure)

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """They have been."""
        self._recorder.optimizing(False)

    def step_done(self) -> None:
        """End the step's file and begin the next. Raises Full where nothing can be written and the run is to end."""
        self._end(f"{self._step:06d}", self._wanted.is_step_wanted(self._step))
        if self._step == 0:
            self._warn()
        self._step += 1
        wanted = self._wanted.is_step_wanted(self._step) and self._wanted.is_rank_wanted(self._rank() or 0)
        self._recorder.on = not self._ended and wanted
        self._check()

    def _warn(self) -> None:
        """Say what of the filters matches nothing, as far as the first step shows."""
        distributed = self._torch.distributed
        started = distributed.is_available() and distributed.is_initialized()
        world = distributed.get_world_size() if started else int(os.environ.get("WORLD_SIZE") or 1)
        for text in self._wanted.describe_unmatched(self._scopes.list_module_names(), self._recorder.seen, world):
            self._tell(f"warning: {text}", once=True)

    def _end(self, name: str, keep: bool) -> None:
        if os.getpid() != self._process or self._ended:
            return
        self._recorder.end_step(name, keep and self._wanted.is_rank_wanted(self._rank() or 0))

    def _folder(self) -> Path:
        rank = self._rank()
        return self._root / layout.FOLDER / (f"process-{self._process}" if rank is None else f"rank{rank}")

    def _described(self) -> dict[str, Any]:
        return {
            "torchport": __version__,
            "pid": self._process,
            "rank": self._rank(),
            "level": self._wanted.level,
            "recorder": self._recorder.name,
            "computes": self._computes,
            "checked": self._recorder.checks_inputs,
            "filters": self._wanted.to_dict()["filters"],
            **self._about,
        }

    def _written(self, name: str, path: Path, tables: StepTables, size: int) -> None:
        """In the writer's thread: the step is whole."""
        calls = len(tables.arrays["calls"])
        self._journal.write_event(
            "operators",
            step=-1 if name == layout.REST else int(name),
            file=str(path.relative_to(self._root)),
            calls=calls,
            tensors=len(tables.arrays["tensors"]),
            bytes=size,
            lost=tables.lost,
        )
        self._lost += tables.lost
        self._wrote += 1
        if not self._told and name != layout.REST:
            self._told = True
            self._foresee(size, calls)
        if self._ring is not None and name != layout.REST and self._ring.add_step(int(name), path, tables, size):
            self._overflowed(self._ring)

    def _dropped(self, path: Path, size: int) -> None:
        self._journal.write_event("dropped", file=str(path.relative_to(self._root)))
        if self._writer is not None:
            self._writer.add_freed_bytes(size)

    def _left_out(self, step: int) -> bool:
        """Whether a GradScaler has left out a step whose operators are in this step's file."""
        path = self._root / PROCESSES / str(self._process) / JOURNAL
        return any(
            event["kind"] == "scaler" and event["skipped"] and event["step"] == step for event in read_journal(path)
        )

    def _overflowed(self, ring: Ring) -> None:
        """In the writer's thread: what led there is kept, and nothing new is to be learned."""
        if ring.found is not None and self._wanted.keep_last is not None:
            self._journal.write_event("overflow", **describe_overflow(ring.found, self._wanted.keep_last))
            self._tell(f"{ring.found.sentence}; the last {self._wanted.keep_last} steps are kept, later ones are not")
            self._ended = True
            self._recorder.on = False

    def _foresee(self, size: int, calls: int) -> None:
        free = shutil.disk_usage(self._root).free
        more = f", {round(free / size):,} fill the disk" if size * 100 * FORESEEN > free else ""
        if (most := self._wanted.max_bytes) and self._ring is None:  # which gives back what it took
            more += f", --max-bytes {format_bytes(most)} ends it after about {max(1, most // size):,}"
        self._tell(
            f"one step of operators ({calls:,} calls, level {self._wanted.level}) takes {format_bytes(size)}: "
            f"{FORESEEN:,} steps take {format_bytes(size * FORESEEN)}{more}",
            once=True,
        )
        if why := self._about.get(WITHOUT):
            self._tell(
                f"operators are noted in Python, slower than by the library, which cannot be used: {why}", once=True
            )

    def _check(self) -> None:
        writer = self._writer
        if writer is None or not writer.failure or self._ended:
            return
        self._ended = True
        self._recorder.on = False
        stops = writer.full and self._wanted.on_full != DROP
        what = "the run ends here (--on-full drop lets it go on)" if stops else "the run goes on without"
        self._tell(f"{writer.failure}; {self._whole()}; {what}")
        if stops:
            raise Full(2)

    def _whole(self) -> str:
        """Which steps there are."""
        return f"steps that are whole: {self._wrote}" if self._wrote else "not even one step is whole"

    def _tell(self, text: str, *, once: bool = False) -> None:
        """Into the journal and to people; with `once` to those of the first rank alone."""
        # The journal may be on the disk that is full.
        with contextlib.suppress(OSError):
            self._journal.write_event("note", text=text)
        if not once or not self._rank():
            self._say(text)

    def finish(self) -> None:
        """Write what came after the last step, and wait for the disk; nothing where that has been done."""
        if os.getpid() != self._process or self._finished:
            return
        self._finished = True
        atexit.unregister(self.finish)
        quiet.remove_listener(self._recorder.quiet)
        self._scopes.remove()
        self._recorder.stop()
        if self._recorder.calls:
            self._end(layout.REST, keep=not self._wanted.filters.get("step"))
        self._recorder.close()
        if self._writer is not None:
            self._writer.join()
            if self._writer.failure and not self._ended:
                self._tell(f"{self._writer.failure}; {self._whole()}")
            elif not self._step:
                self._warn()
            elif not self._wrote and (steps := self._wanted.filters.get("step")):
                self._tell(f"warning: the run had {self._step:,} steps, none of them step={' or '.join(steps)}")
        if self._lost:
            self._tell(f"{self._lost:,} calls of operators could not be recorded")


def _computes(torch: Any) -> dict[str, Any]:
    """What computes in this process, as a judge of its numbers has to know it."""
    virtual = vnpu.launches() is not None
    return {
        "torch": str(torch.__version__),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "npu": VIRTUAL if virtual else "hardware" if hasattr(torch, "npu") else None,
        "cuda": torch.version.cuda,
    }


def format_bytes(size: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def make_operators_part(
    torch: Any,
    wanted: Wanted,
    root: Path,
    journal: Journal,
    sites: Sites,
    rank: Callable[[], int | None],
    about: Mapping[str, Any],
    say: Callable[[str], object] | None = None,
) -> OperatorsPart:
    """The part that this process can have: with the library where it is, else in Python, and then the recording says
    so."""
    from torchport.record.operators.hook import HookRecorder
    from torchport.record.operators.mode import ModeRecorder

    chosen = os.environ.get(CHOICE, "")
    recorder: Any = None
    if chosen != "mode":
        try:
            recorder = HookRecorder(torch, wanted, sites, reductions=chosen == "reductions", alone=chosen == "alone")
        except OSError as error:
            about = {**about, WITHOUT: str(error)}
    if recorder is None:
        recorder = ModeRecorder(torch, wanted, sites)
    return OperatorsPart(torch, recorder, wanted, root, journal, rank, about, say)
