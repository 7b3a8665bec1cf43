"""Look at many files at once, each on its own: none can stop, slow down or crash the others.

Files go one by one to worker processes. A worker that needs too long or dies is replaced, and its file becomes a
finding. Workers parse with a large stack, so that deep but honest code is no problem. They live for all that is done
with the files of a project, and each gets the files again that it has looked at before: it may have kept them parsed.
"""

from __future__ import annotations

import collections
import dataclasses
import gc
import math
import multiprocessing
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from torchport.convert.inspection import about_file, make_bug_finding
from torchport.findings import Finding
from torchport.source.definitions import Definitions, Known
from torchport.source.links import Key

_MOST_PROCESSES = 8
_PATIENCE = 6  # times as many seconds on the clock: what waits (a dead network disk) uses no CPU
# Parsing needs about 1 KiB of stack per level; the memory is only taken when it is used.
_STACK = 512 * 2**20
_RECURSION = 20_000
_ALLOCATIONS = 500_000  # of objects that are left, after which cycles are looked for
_SPAWN = multiprocessing.get_context("spawn")

Task = Callable[[Path, str, Definitions], Any]
Lost = Callable[[Path, str, Finding], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """A task for the files that follow, and the values that are known by now."""

    task: Task
    values: Mapping[str, Mapping[Key, Known]]


class Pool:
    """Worker processes for the files of one project; they are started when there is something to do, and are ended
    with the block.

    A file may take `seconds` of CPU time, rounded up to whole ones.
    """

    def __init__(self, project: Definitions, seconds: float, processes: int) -> None:
        self._workers = [_Worker(project, seconds) for _ in range(min(processes, _MOST_PROCESSES))]
        self._project = project
        self._seen: dict[str, _Worker] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.stop()

    def run(self, files: Sequence[tuple[Path, str]], task: Task, lost: Lost) -> Iterator[Any]:
        """The answers of `task`, one for each file in order, or of `lost` for a file that took too long or ended its
        process."""
        job = _Job(task, self._project.values)
        waiting = _Waiting([self._seen.get(name) for _, name in files])
        done: dict[int, Any] = {}
        for worker in self._workers:
            worker.begin_job(job)
            self._give(worker, waiting, files)
        for index in range(len(files)):
            while index not in done:
                for worker in collect_outcomes(self._workers, files, done, lost):
                    self._give(worker, waiting, files)
            yield done.pop(index)

    def _give(self, worker: _Worker, waiting: _Waiting, files: Sequence[tuple[Path, str]]) -> None:
        index = waiting.take_file(worker)
        if index is not None:
            self._seen[files[index][1]] = worker
            worker.assign_file(index, files[index])


class _Waiting:
    """The files that nobody looks at yet, by the worker that has seen them."""

    def __init__(self, seen: Sequence[_Worker | None]) -> None:
        self._of: dict[_Worker | None, collections.deque[int]] = {None: collections.deque()}
        for index, worker in enumerate(seen):
            self._of.setdefault(worker, collections.deque()).append(index)

    def take_file(self, worker: _Worker) -> int | None:
        """The first file that this worker has seen or nobody has; where there is none, the last one of another."""
        mine = [files for files in (self._of.get(worker), self._of[None]) if files]
        if mine:
            return min(mine, key=lambda files: files[0]).popleft()
        others = max(self._of.values(), key=len)
        return others.pop() if others else None


def collect_outcomes(
    workers: Sequence[_Worker], files: Sequence[tuple[Path, str]], done: dict[int, Any], lost: Lost
) -> list[_Worker]:
    """Wait for the next answer, death or time limit and note the outcome; the workers that are free now."""
    busy = [worker for worker in workers if worker.index is not None]
    next_limit = min(worker.limit for worker in busy)
    wait([worker.pipe for worker in busy], max(0.0, next_limit - time.monotonic()))
    free = []
    for worker in busy:
        if worker.index is None:
            continue
        path, name = files[worker.index]
        # First: the pipe ends before the process does, and what ended it is known no earlier.
        alive = worker.is_alive()
        outcome = worker.poll_answer()
        if outcome is None and worker.is_late():
            hint = "Split the file, or convert it by hand."
            outcome = lost(path, name, about_file("TP904", name, f"it took more than {worker.seconds:g} s", hint))
        elif outcome is None and not alive:
            outcome = lost(path, name, make_bug_finding(name, "the process that converted the file died"))
        if outcome is not None:
            done[worker.index] = outcome
            worker.become_idle()
            free.append(worker)
    return free


class _Worker:
    """One worker process, started when it gets its first file and again after it was lost."""

    def __init__(self, project: Definitions, seconds: float) -> None:
        self._project = project
        self.seconds = seconds
        self._process: multiprocessing.process.BaseProcess | None = None
        self._job: _Job
        self.pipe: Connection
        self.index: int | None = None
        self.limit = 0.0

    def begin_job(self, job: _Job) -> None:
        self._job = job
        if self.is_alive():
            self.pipe.send(job)
        else:
            self.stop()

    def assign_file(self, index: int, file: tuple[Path, str]) -> None:
        if self._process is None:
            # A copy of this process starts in milliseconds, but only a process without threads may be copied.
            alone = threading.active_count() == 1
            self.pipe, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process if alone else _SPAWN.Process
            started = process(target=_work, args=(theirs, self._project, self._job, self.seconds), daemon=True)
            # Ctrl-C waits until the process is there to be ended; in the process it is never heard.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                started.start()
                self._process = started
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.index, self.limit = index, time.monotonic() + _PATIENCE * self.seconds
        self.pipe.send(file)

    def poll_answer(self) -> Any:
        """What the task answered; None while there is none."""
        try:
            if not self.pipe.poll():
                return None
            return self.pipe.recv()
        except (EOFError, OSError):
            return None

    def is_late(self) -> bool:
        """Whether the system ended the process for its CPU time, or it has waited for too long."""
        if time.monotonic() > self.limit:
            return True
        return self._process is not None and self._process.exitcode == -signal.SIGXCPU

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def become_idle(self) -> None:
        """Be free for the next file; a process that was lost or is too late is ended."""
        self.index = None
        if time.monotonic() > self.limit or not self.is_alive():
            self.stop()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self.pipe.close()
            self._process = None


def _work(pipe: Connection, project: Definitions, job: _Job, seconds: float) -> None:
    """Look at files until the other end of the pipe is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the end for a file's CPU time is no crash to be kept
    sys.setrecursionlimit(_RECURSION)
    threading.stack_size(_STACK)
    thread = threading.Thread(target=_serve, args=(pipe, project, job, seconds))
    thread.start()
    thread.join()


def _serve(pipe: Connection, project: Definitions, job: _Job, seconds: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    # A parsed file is many objects without a cycle: looking for cycles after every 700 of them is a fifth of the time.
    gc.freeze()
    gc.disable()
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            return
        if isinstance(message, _Job):
            job = message
            project.values.update(job.values)
            continue
        limit = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit if most < 0 else min(limit, most), most))
        path, name = message
        pipe.send(job.task(path, name, project))
        if gc.get_count()[0] > _ALLOCATIONS:
            gc.collect()
