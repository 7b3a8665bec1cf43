"""Keep what a script writes inside its view, and remember what it writes elsewhere. In the user's process.

Python tells an audit hook before it opens, renames or removes a file. Libraries that open files in C or C++ do
not: those that training scripts save with are wrapped when they are imported. What is left (other programs,
other libraries) is found afterwards by `torchport.port.view.View.changed_outside`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchport.on_import import after_import
from torchport.patches import Patches
from torchport.record import links

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SYSTEM = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp")  # noqa: S108  not where we write
CACHES = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TORCH_HOME", "HF_HOME"),
    *("HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE", "TRITON_CACHE_DIR", "TRITON_HOME"),
    *("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "KERAS_HOME"),
    *("ASCEND_PROCESS_LOG_PATH", "ASCEND_WORK_PATH", "PYTHONPYCACHEPREFIX"),
)
HOME = (".cache", ".config", ".triton", ".nv", ".keras", ".torch", "ascend")
BYTECODE = ("__pycache__", ".pyc")
# Arguments of an event that are paths: position of the path and of its folder's descriptor (None without one), whether
# a link in the last part is written through, whether the path goes away.
_Row = tuple[int, int | None, bool, bool]
EVENTS: dict[str, tuple[_Row, ...]] = {
    "os.truncate": ((0, None, True, False),),
    "os.chmod": ((0, 2, True, False),),
    "os.chown": ((0, 3, True, False),),
    "os.utime": ((0, 3, True, False),),
    "os.setxattr": ((0, None, True, False),),
    "os.link": ((0, 2, True, False), (1, 3, False, False)),
    "os.symlink": ((1, 2, False, False),),
    "os.mkdir": ((0, 2, False, False),),
    "os.rmdir": ((0, 1, True, True),),
    "os.remove": ((0, 1, False, True),),
    "os.rename": ((0, 2, False, True), (1, 3, False, False)),
    "shutil.rmtree": ((0, 1, True, True),),
    "sqlite3.connect": ((0, None, True, False),),
}

# Events after which paths are relative to the argument at this position: never to a link's target.
WORKING = {"os.chdir": 0, "subprocess.Popen": 2}


class Writes:
    """What a process, and those forked from it, write: inside of the view anything, outside remembered."""

    def __init__(self, view: Path, original: Path | None, report: Path | None) -> None:
        """See `guard_writes`."""
        self._view = os.path.realpath(view)
        self._original = os.path.realpath(original) if original else None
        self._report = report
        state = os.stat(self._view)
        self._identity = state.st_dev, state.st_ino
        self._seen: dict[str, bool] = {}
        self._busy = threading.local()
        self._elsewhere = _left_alone(os.path.dirname(self._view))

    def list_outside_files(self) -> list[str]:
        """Files outside of the view that this process opened for writing or removed, in the order of their names.

        Those in temporary folders and caches are not listed, nor what was made and is gone again.
        """
        return sorted(path for path, gone in self._seen.items() if gone or os.path.lexists(path))

    def before_write(
        self, path: object, last: bool = True, content: bool = True, gone: bool = False, remember: bool = True
    ) -> None:
        """Call before something is written to `path`: links of the view on the way become copies.

        Numbers of open files and what is no path are ignored. Raises OSError where a copy cannot be made.
        """
        if getattr(self._busy, "now", False) or not isinstance(path, str | bytes | os.PathLike):
            return
        self._busy.now = True
        try:
            said = os.fsdecode(path)
            parts = said.split(os.sep)
            for place in (place for place, part in enumerate(parts) if part == ".." and place):
                # The way up from a link's target is not the way up from the link.
                above = self._in_view(os.path.abspath(os.sep.join(parts[:place]) or os.sep))
                if above is not None:
                    links.replace_links(self._view, above)
            absolute = os.path.abspath(said)
            inside = self._in_view(absolute)
            if inside is not None:
                links.replace_links(self._view, inside, last, content)
            elif remember:
                self._remember(os.path.realpath(absolute) if last else absolute, gone)
        finally:
            self._busy.now = False

    def _in_view(self, path: str) -> str | None:
        """An absolute path by the view's own name; None for one that is not in it."""
        if _below(path, self._view):
            return path
        above = path
        while above != os.sep:  # a folder above the view may be reached through a link
            try:
                state = os.stat(above)
                if (state.st_dev, state.st_ino) == self._identity:
                    return os.path.normpath(os.path.join(self._view, os.path.relpath(path, above)))
            except OSError:
                pass  # not there (yet)
            above = os.path.dirname(above)
        return None

    def _remember(self, path: str, gone: bool) -> None:
        if path in self._seen or any(part in path for part in BYTECODE):
            return
        users = self._original is not None and _below(path, self._original)
        if any(_below(path, place) for place in self._elsewhere[: 1 if users else None]):
            return
        if os.path.lexists(path):
            if not (os.path.isfile(path) or os.path.isdir(path)) or not os.access(path, os.W_OK):
                return  # a terminal; or it will be refused
        elif gone:
            return
        self._seen[path] = gone
        if self._report is not None:
            line = json.dumps({"path": path, "gone": gone}) + "\n"
            descriptor = os.open(self._report, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(descriptor, line.encode())  # one write: processes share the file
            finally:
                os.close(descriptor)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Called for everything that Python does: most calls have to end here.
        if event == "open":
            path, _, flags = arguments
            if flags & WRITING and not isinstance(path, int):
                self.before_write(path, content=not flags & os.O_TRUNC)
            return
        rows = EVENTS.get(event)
        place = WORKING.get(event)
        if place is not None:
            self.before_write(arguments[place], remember=False)
        elif rows is not None:
            for position, folder, last, gone in rows:
                self.before_write(_at(arguments, position, folder), last=last, gone=gone)


def guard_writes(view: Path, original: Path | None = None, report: Path | None = None) -> Writes:
    """Watch over what this process writes from now on; there is no way back, Python keeps audit hooks for good.

    `view` is the run's folder. Writes to the folder `original`, which it mirrors, are remembered even where that is
    among temporary ones. Each file written outside is added to the file `report` at once, which several
    processes may share and `read_report` reads. Raises OSError where the view is not there.
    """
    writes = Writes(view, original, report)
    sys.addaudithook(writes._hook)
    for name, wrap in _LIBRARIES.items():
        after_import(name, lambda module, wrap=wrap: wrap(module, writes.before_write))  # type: ignore[misc]
    return writes


def read_report(report: Path) -> list[str]:
    """List the outside files of all processes that shared the file `report`, see `Writes.list_outside_files`.

    Empty if the file is missing."""
    try:
        lines = report.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    rows = [json.loads(line) for line in lines]
    return sorted({row["path"] for row in rows if row["gone"] or os.path.lexists(row["path"])})


def _left_alone(output: str) -> tuple[str, ...]:
    """Places that a run may write to without a word; the first, its output folder, even below the user's folder."""
    home = os.path.expanduser("~")
    caches = (os.environ.get(name) for name in CACHES)
    places = [*SYSTEM, tempfile.gettempdir(), *filter(None, caches), *(f"{home}/{name}" for name in HOME)]
    return (output, *dict.fromkeys(os.path.realpath(place) for place in places))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _at(arguments: tuple[Any, ...], position: int, folder: int | None) -> object:
    """A path among an event's arguments, absolute where it is relative to an open folder."""
    path = arguments[position] if position < len(arguments) else None
    descriptor = arguments[folder] if folder is not None and folder < len(arguments) else -1
    if not isinstance(descriptor, int) or descriptor < 0 or not isinstance(path, str | bytes | os.PathLike):
        return path
    return os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), os.fsdecode(path))


_Before = Callable[..., None]


def _torch(torch: Any, before: _Before) -> None:
    patches = Patches()

    def path_first(method: Any) -> Any:
        def wrapped(self: Any, path: Any, *arguments: Any, **options: Any) -> Any:
            before(path)
            return method(self, path, *arguments, **options)

        return wrapped

    def path_second(function: Any) -> Any:
        def wrapped(what: Any, path: Any, *arguments: Any, **options: Any) -> Any:
            before(path)
            return function(what, path, *arguments, **options)

        return wrapped

    def shared(function: Any) -> Any:
        def wrapped(filename: Any, shared: bool = False, *arguments: Any, **options: Any) -> Any:
            if shared:
                before(filename)
            return function(filename, shared, *arguments, **options)

        return wrapped

    patches.wrap(torch.serialization._open_zipfile_writer_file, "__init__", path_first)
    patches.wrap(torch.jit.RecursiveScriptModule, "save", path_first)
    patches.wrap(torch.jit, "save", path_second)
    patches.wrap(torch.autograd.profiler.profile, "export_chrome_trace", path_first)
    patches.wrap(torch, "from_file", shared)


def _h5py(h5py: Any, before: _Before) -> None:
    def opening(method: Any) -> Any:
        def wrapped(self: Any, name: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if mode != "r":
                before(name)
            return method(self, name, mode, *arguments, **options)

        return wrapped

    Patches().wrap(h5py.File, "__init__", opening)


def _safetensors(safetensors: Any, before: _Before) -> None:
    def saving(function: Any) -> Any:
        def wrapped(tensors: Any, filename: Any, *arguments: Any, **options: Any) -> Any:
            before(filename)
            return function(tensors, filename, *arguments, **options)

        return wrapped

    Patches().wrap(safetensors, "serialize_file", saving)


def _cv2(cv2: Any, before: _Before) -> None:
    def saving(function: Any) -> Any:
        def wrapped(filename: Any, *arguments: Any, **options: Any) -> Any:
            before(filename)
            return function(filename, *arguments, **options)

        return wrapped

    Patches().wrap(cv2, "imwrite", saving)


_LIBRARIES: dict[str, Callable[[Any, _Before], None]] = {
    "torch": _torch,
    "h5py": _h5py,
    "safetensors": _safetensors,
    "cv2": _cv2,
}
