"""Make a second folder that looks like the first, in about a second however large that is.

Where the file system shares blocks between files (btrfs, XFS) every file is a copy. Elsewhere small files,
source code and checkpoints are copied and the rest are symbolic links, as are folders with very many
entries, hidden ones and environments: a budget bounds the work. `torchport.record.writes` makes a link a
copy before a script writes through it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import errno
import fcntl
import itertools
import os
import stat
from collections import deque
from collections.abc import Mapping

from torchport.errors import name_path_in_errors
from torchport.port.git_copy import copy_repository
from torchport.port.lock import LOCK

FICLONE = 0x40049409  # linux/fs.h: make a file share another's blocks
CROWDED = 1000  # entries from which on a folder is linked as a whole
KIB, MIB = 1 << 10, 1 << 20
# Files that a script's own folder leads to (`Path(__file__).resolve()`), so links will not do.
CODE = frozenset(
    (".py", ".pyi", ".ipynb", ".sh", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".cu", ".cuh", ".cpp", ".h")
)
# Files that scripts write, often with C++ that nothing can be put in front of.
WRITABLE = frozenset(
    (
        *(".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".npz", ".npy", ".h5", ".hdf5", ".pkl", ".onnx", ".pt2"),
        *(".json", ".jsonl", ".csv", ".log", ".txt", ".db", ".sqlite"),
    )
)
LEFT_OUT = frozenset(("__pycache__",))
LINKED = frozenset(("venv", "node_modules", "site-packages"))


class Kind(enum.Enum):
    """What stands for an entry of the original folder."""

    FOLDER = "folder"
    COPY = "copy"
    USERS_LINK = "link of the user's"
    LINKED = "link to the original"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """`text` is what a link says; `signature` a copy's, or the original's behind a link (None for folders)."""

    kind: Kind
    text: str = ""
    signature: tuple[int, ...] | None = None


@dataclasses.dataclass(slots=True)
class Budget:
    """What is left to spend. Each file, folder and link costs about 0.1 ms; bytes are counted by class."""

    entries: int = 6000  # of folders that are made, not linked
    files: int = 3000  # copied
    small: int = 64 * MIB
    writable: int = 512 * MIB
    largest: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"code": 2 * MIB, "writable": 256 * MIB, "small": 4 * MIB}
    )
    clones: bool = True  # until the file system says no

    def reserve_copy(self, name: str, size: int) -> bool:
        """Whether a file is to be copied byte by byte; takes it off the budget."""
        suffix = os.path.splitext(name)[1].lower()
        if self.files <= 0:
            return False
        if suffix in CODE and size <= self.largest["code"]:
            pass
        elif suffix in WRITABLE and size <= min(self.largest["writable"], self.writable):
            self.writable -= size
        elif size <= min(self.largest["small"], self.small):
            self.small -= size
        else:
            return False
        self.files -= 1
        return True


def compute_signature(state: os.stat_result) -> tuple[int, ...]:
    """What changes when a file's content is changed or it is replaced."""
    return (state.st_size, state.st_mtime_ns, state.st_ino)


class Mirror:
    """One making of a mirror of `folder` (an absolute path without links) at `place`."""

    def __init__(self, folder: str, place: str, apart_from: str, real: set[str], budget: Budget) -> None:
        """`real` are paths, relative, that must not be links; `apart_from` and `place` are left out."""
        self._folder, self._place = folder, place
        self._left_out = {apart_from, place}
        self._real = real
        self._budget = budget
        self.entries: dict[str, Entry] = {}

    def fill_place(self) -> None:
        """Fill `place`, which must not exist. Raises OSError; what it made so far is then still there."""
        waiting = deque([""])  # nearest first: what is deep down is what gets linked
        while waiting:
            waiting.extend(self._make_folder(waiting.popleft()))

    def _make_folder(self, relative: str) -> list[str]:
        """Make one folder; give back the folders in it that are still to be made."""
        source = os.path.join(self._folder, relative) if relative else self._folder
        must = not relative or relative in self._real
        entries = None
        if must or self._budget.entries > 0:
            try:
                with contextlib.suppress(PermissionError), os.scandir(source) as found:
                    entries = list(found) if must else list(itertools.islice(found, CROWDED + 1))
            except FileNotFoundError:
                if must:
                    raise
                return []  # it went away meanwhile: somebody else works in the folder
        if entries is None or (not must and len(entries) > min(CROWDED, self._budget.entries)):
            self._link(relative, None)
            return []
        self._budget.entries -= 1 + len(entries)
        target = os.path.join(self._place, relative)
        os.mkdir(target)
        os.chmod(target, stat.S_IMODE(os.stat(source).st_mode) | stat.S_IRWXU)
        if relative:
            self.entries[relative] = Entry(Kind.FOLDER)
        folders = []
        for entry in sorted(entries, key=_order):
            inside = os.path.join(relative, entry.name)
            try:
                if self._make_entry(inside, entry, len(entries) > CROWDED):
                    folders.append(inside)
            except FileNotFoundError:
                if os.path.lexists(entry.path):
                    raise
        return folders

    def _make_entry(self, relative: str, entry: os.DirEntry[str], crowded: bool) -> bool:
        """Make what stands for one entry, unless it is a folder that has to be made later: then True."""
        name = entry.name
        if name in LEFT_OUT or entry.path in self._left_out:
            return False
        if entry.is_symlink() and not (relative in self._real and os.path.exists(entry.path)):
            self._users_link(relative, entry)
        elif name == ".git":
            copy_repository(entry.path, os.path.join(self._place, relative))
        elif entry.is_dir():
            if relative in self._real:
                return True
            if os.path.exists(os.path.join(entry.path, LOCK)) and os.path.isdir(os.path.join(entry.path, "convert")):
                return False  # the output of another script's port, with recordings and weights
            if (
                name.startswith(".")
                or name in LINKED
                or os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
                or os.path.exists(os.path.join(entry.path, "conda-meta"))
            ):
                self._link(relative, None)
                return False
            return True
        elif entry.is_file():
            self._file(relative, entry, crowded)
        return False  # sockets, pipes and devices are not for copying

    def _file(self, relative: str, entry: os.DirEntry[str], crowded: bool) -> None:
        state = entry.stat()
        target = os.path.join(self._place, relative)
        must = relative in self._real
        if crowded and not must and os.path.splitext(entry.name)[1] not in CODE:
            self._link(relative, state)
            return
        try:
            clone = self._budget.clones and self._budget.files > 0
            if clone and state.st_size > 0:
                copied = copy_file(entry.path, target, clone_only=True)
                if copied is not None:
                    self._budget.files -= 1
                    self.entries[relative] = Entry(Kind.COPY, signature=copied)
                    return
                self._budget.clones = False
            if must or self._budget.reserve_copy(entry.name, state.st_size):
                self.entries[relative] = Entry(Kind.COPY, signature=copy_file(entry.path, target))
                return
        except PermissionError:
            pass  # through a link, reading it fails as it does in the original's place
        except FileNotFoundError:
            return  # it went away meanwhile
        self._link(relative, state)

    def _link(self, relative: str, state: os.stat_result | None) -> None:
        text = os.path.join(self._folder, relative)
        os.symlink(text, os.path.join(self._place, relative))
        made = None if state is None else (*compute_signature(state), state.st_ctime_ns)
        self.entries[relative] = Entry(Kind.LINKED, text, made)

    def _users_link(self, relative: str, entry: os.DirEntry[str]) -> None:
        """The link, saying what leads from the view to the place that it leads to from the original."""
        said = os.readlink(entry.path)
        parent = os.path.dirname(entry.path)
        leads = os.path.normpath(os.path.join(parent, said))
        inside = _is_below(leads, self._folder) and not any(_is_below(leads, out) for out in self._left_out)
        if not inside:
            said = leads
        elif os.path.isabs(said):
            said = os.path.relpath(leads, parent)
        os.symlink(said, os.path.join(self._place, relative))
        self.entries[relative] = Entry(Kind.USERS_LINK, said)


def copy_file(source: str, target: str, clone_only: bool = False) -> tuple[int, ...] | None:
    """Copy content, permissions and times to `target`, which must not exist; its signature.

    With `clone_only` None, and nothing made, where the file system cannot share blocks. Raises OSError.
    """
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            state = os.fstat(reader)
            if clone_only:
                try:
                    fcntl.ioctl(writer, FICLONE, reader)
                except OSError:  # which of several errors it is depends on the file system
                    os.unlink(target)
                    return None
            else:
                with name_path_in_errors(target):
                    _copy_bytes(reader, writer, state.st_size)
            os.fchmod(writer, stat.S_IMODE(state.st_mode))
            os.utime(writer, ns=(state.st_atime_ns, state.st_mtime_ns))
            return compute_signature(os.fstat(writer))
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_bytes(reader: int, writer: int, size: int) -> None:
    if size > MIB:
        try:
            while os.copy_file_range(reader, writer, 1 << 30):
                pass
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
    while data := os.read(reader, MIB):  # the rest: both go on where they are
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]


def _order(entry: os.DirEntry[str]) -> tuple[bool, str]:
    return (os.path.splitext(entry.name)[1] not in CODE, entry.name)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
