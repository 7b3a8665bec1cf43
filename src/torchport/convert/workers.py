"""Convert many files at once, each on its own: none can stop, slow down or crash the others.

Files go one by one to worker processes. A worker that needs too long or dies is replaced, and its file becomes a
finding. Workers parse with a large stack, so that deep but honest code is no problem.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import gc
import math
import multiprocessing
import os
import re
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from torchport.convert.inspection import LARGEST, about_file, make_bug_finding, report_unreadable
from torchport.convert.residue import Mention, find_residue
from torchport.convert.source import convert_source
from torchport.convert.stages import Extras, convert_in_stages
from torchport.convert.values import SPELLS, Joined, Survey, find_readers, survey_source
from torchport.findings import Edit, Finding, hash_bytes
from torchport.knowledge.arguments import load_role
from torchport.rules import Style
from torchport.source.defined import find_defined_names
from torchport.source.definitions import Definitions, Known, collect_definitions, find_provided_modules
from torchport.source.imports import Imports
from torchport.source.kinds import Kind, kind_of
from torchport.source.links import Key
from torchport.source.outside import Outside
from torchport.source.siblings import find_paired_files

SECONDS_PER_FILE = 20.0  # of CPU time; a machine that is busy elsewhere is no reason to give a file up
_ROUNDS = 5  # files that know a value lead to others; more are never needed by people
_PATIENCE = 6  # times as many seconds on the clock: what waits (a dead network disk) uses no CPU
# Parsing needs about 1 KiB of stack per level; the memory is only taken when it is used.
_STACK = 512 * 2**20
_RECURSION = 20_000
_ALLOCATIONS = 50_000  # of objects, between two looks for cycles among the youngest
_DEFINING = frozenset({Kind.PYTHON, Kind.YAML, Kind.SETTINGS})  # a key of JSON may be anybody's data
_LARGEST_WITH_NAMES = 2**20  # bytes; a larger one is data
_ATTRIBUTE = re.compile(rb"\.([A-Za-z_]\w*)")
_SPAWN = multiprocessing.get_context("spawn")


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """One file of a project; `data` and `output` only where they differ, `digest` always."""

    path: Path
    name: str
    digest: str
    findings: tuple[Finding, ...] = ()
    data: bytes = b""
    output: bytes = b""
    edits: tuple[Edit, ...] = ()
    residue: tuple[Mention, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.edits)


def convert_file(
    path: Path, name: str, style: Style, project: Definitions | None = None, extras: Extras | None = None
) -> Converted:
    """Read and convert one file. One that cannot be read is a finding (TP900)."""
    try:
        data = _read(path)
    except OSError as error:
        return Converted(path, name, "", (about_file("TP900", name, f"the file cannot be read: {error.strerror}"),))
    extras = extras or Extras()
    conversion = convert_in_stages(
        data, name, extras, project, lambda data: convert_source(data, name, style, project, extras.ignore)
    )
    if not conversion.findings and (extras.asked_for or kind_of(name) is Kind.NOTEBOOK):
        conversion = dataclasses.replace(conversion, findings=report_unreadable(data, name))
    done = Converted(
        path,
        name,
        hash_bytes(data),
        conversion.findings,
        residue=find_residue(conversion.output, name, conversion.left, project) if len(data) <= LARGEST else (),
    )
    if conversion.output == data:
        return done
    return dataclasses.replace(done, data=data, output=conversion.output, edits=conversion.edits)


def _read(path: Path) -> bytes:
    """The content of a regular file; reading a pipe would wait for somebody to write. Raises OSError."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise OSError(errno.EACCES, "its folder may not be looked into")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.read_bytes()


def convert_files(
    files: Sequence[tuple[Path, str]],
    style: Style,
    extras: Extras | None = None,
    *,
    seconds: float = SECONDS_PER_FILE,
    processes: int | None = None,
) -> Iterator[Converted]:
    """Convert (path, name) pairs; the results come in the same order, whatever happens to a file.

    A file may take `seconds` of CPU time, rounded up to whole ones.
    """
    project = _project(files, extras or Extras())
    pool = functools.partial(_spread, seconds=seconds, processes=processes)
    project = dataclasses.replace(project, values=_values(files, project, pool))
    yield from pool(files, _Convert(style, project, extras), _given_up)


def _given_up(path: Path, name: str, finding: Finding) -> Converted:
    return Converted(path, name, "", (finding,))


@dataclasses.dataclass(frozen=True, slots=True)
class _Convert:
    """What a worker does with a file that is converted."""

    style: Style
    project: Definitions
    extras: Extras | None

    def __call__(self, path: Path, name: str) -> Converted:
        return convert_file(path, name, self.style, self.project, self.extras)


def _values(
    files: Sequence[tuple[Path, str]], project: Definitions, pool: Callable[..., Iterator[Survey]]
) -> Mapping[str, Mapping[Key, Known]]:
    """What the files know of each other's devices and backends."""
    if len(files) < 2:
        return {}
    texts = {name: path for path, name in files if kind_of(name) is Kind.PYTHON}
    waiting = {name for name in texts if SPELLS.search(_content(texts[name]))}
    done: dict[str, Survey] = {}
    for _ in range(_ROUNDS):
        chosen = [(texts[name], name) for name in sorted(waiting)]
        survey_one = functools.partial(survey_file, project=project)
        for one in pool(chosen, survey_one, lambda path, name, finding: Survey(name)):
            done[one.path] = one
        joined = Joined(done.values())
        asked = find_readers(joined.find_spelled_keys(), project.importers)
        options = _plain(asked.pop("", set()))
        waiting = {
            name
            for name, path in texts.items()
            if name not in done and _may_know(_content(path), asked.get(name, set()), options)
        }
        if not waiting:
            break
    return {name: known for name in done if (known := joined.find_known_values(name))}


def _plain(options: set[str]) -> set[bytes]:
    """The names of options that do not say by themselves that they are devices or backends."""
    return {
        name.encode()
        for name in options
        if not any(load_role(kind).names.match(name) for kind in ("device", "backend"))
    }


def _may_know(data: bytes, words: set[str], options: set[bytes]) -> bool:
    """Whether a file names one of the words (an empty one: in any case) or imports all there are, or has an option."""
    if "" in words:
        return True
    if options and not options.isdisjoint(_ATTRIBUTE.findall(data)):
        return True
    names = b"|".join(re.escape(word.encode()) for word in words)
    return bool(words) and re.search(rb"\b(?:%b)\b|\bimport[ \t]+\*" % names, data) is not None


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):  # converting it will say why it cannot be read
        if path.stat().st_size <= LARGEST:
            return _read(path)
    return b""


def survey_file(path: Path, name: str, project: Definitions) -> Survey:
    """Look at one file; one that cannot be read knows nothing."""
    return survey_source(name, _content(path), project)


def _spread(
    files: Sequence[tuple[Path, str]],
    task: Callable[[Path, str], Any],
    lost: Callable[[Path, str, Finding], Any],
    *,
    seconds: float,
    processes: int | None,
) -> Iterator[Any]:
    """What `task` answers for each file, in order; `lost` does for a file that took too long or ended its process."""
    count = min(processes or os.cpu_count() or 1, 8, max(len(files), 1))
    done: dict[int, Any] = {}
    workers = [_Worker(task, seconds) for _ in range(count)]
    waiting = iter(range(len(files)))
    try:
        for worker in workers:
            _give(worker, waiting, files)
        for index in range(len(files)):
            while index not in done:
                _collect(workers, waiting, files, done, lost)
            yield done.pop(index)
    finally:
        for worker in workers:
            worker.stop()


def _project(files: Sequence[tuple[Path, str]], extras: Extras) -> Definitions:
    """What each file has to know of the others; of a file alone, where others may be found."""
    if not files:
        return Definitions()
    path, name = files[0]
    root = path.resolve().parents[name.count("/")]
    if len(files) == 1:
        return Definitions(
            outside=Outside(root, {}), assume_modules=extras.assume_modules, ignores_npu=extras.ignore_npu_path
        )
    found, imports = _definitions(files, root.name)
    paired = find_paired_files(name for _, name in files if kind_of(name) is Kind.PYTHON)
    return dataclasses.replace(
        found,
        leading=imports.find_cuda_importers(paired),
        targets=imports.list_imported_files(),
        modules=imports.collect_name_parts(),
        importers=imports.find_importers(),
        defined=find_defined_names(_with_names(files)),
        outside=Outside(root, imports.map_top_folders()),
        paired_files=paired,
        assume_modules=extras.assume_modules,
        ignores_npu=extras.ignore_npu_path,
    )


def _definitions(files: Sequence[tuple[Path, str]], folder: str) -> tuple[Definitions, Imports]:
    imports = Imports()

    def python() -> Iterator[bytes]:
        for path, name in files:
            if kind_of(name) is Kind.PYTHON:
                with contextlib.suppress(OSError):  # converting it will say why it cannot be read
                    if path.stat().st_size <= LARGEST:
                        data = _read(path)
                        imports.add_file(name, data)
                        yield data

    own = find_provided_modules((name for _, name in files if kind_of(name) is Kind.PYTHON), folder)
    return collect_definitions(python(), own), imports


def _with_names(files: Sequence[tuple[Path, str]]) -> Iterator[tuple[str, bytes]]:
    """The files in which a project may define names: code and configurations."""
    for path, name in files:
        if kind_of(name) in _DEFINING:
            with contextlib.suppress(OSError):
                if path.stat().st_size <= _LARGEST_WITH_NAMES:
                    yield name, _read(path)


def _give(worker: _Worker, waiting: Iterator[int], files: Sequence[tuple[Path, str]]) -> None:
    index = next(waiting, None)
    if index is not None:
        worker.assign_file(index, files[index])


def _collect(
    workers: list[_Worker],
    waiting: Iterator[int],
    files: Sequence[tuple[Path, str]],
    done: dict[int, Any],
    lost: Callable[[Path, str, Finding], Any],
) -> None:
    """Wait for the next answer, death or time limit; note the outcome and hand out the next file."""
    busy = [worker for worker in workers if worker.index is not None]
    next_limit = min(worker.limit for worker in busy)
    wait([worker.pipe for worker in busy], max(0.0, next_limit - time.monotonic()))
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
            _give(worker, waiting, files)


class _Worker:
    """One worker process, started when it gets its first file and again after it was lost."""

    def __init__(self, task: Callable[[Path, str], Any], seconds: float) -> None:
        self._work = (task, seconds)
        self.seconds = seconds
        self._process: multiprocessing.process.BaseProcess | None = None
        self.pipe: Connection
        self.index: int | None = None
        self.limit = 0.0

    def assign_file(self, index: int, file: tuple[Path, str]) -> None:
        if self._process is None:
            # A copy of this process starts in milliseconds, but only a process without threads may be copied.
            alone = threading.active_count() == 1
            self.pipe, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process if alone else _SPAWN.Process
            started = process(target=_work, args=(theirs, *self._work), daemon=True)
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


def _work(pipe: Connection, task: Callable[[Path, str], Any], seconds: float) -> None:
    """Look at files until the other end of the pipe is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the end for a file's CPU time is no crash to be kept
    sys.setrecursionlimit(_RECURSION)
    threading.stack_size(_STACK)
    thread = threading.Thread(target=_serve, args=(pipe, task, seconds))
    thread.start()
    thread.join()


def _serve(pipe: Connection, task: Callable[[Path, str], Any], seconds: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    # A syntax tree is many objects without a cycle: looking for cycles after every 700 of them is a fifth of the time.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
    while True:
        try:
            path, name = pipe.recv()
        except (EOFError, OSError):
            return
        limit = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit if most < 0 else min(limit, most), most))
        pipe.send(task(path, name))
