"""One run's own copy of the user's folder, and what the run did to it."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from torchport.errors import TorchportError
from torchport.port.mirror import Budget, Entry, Kind, Mirror, compute_signature, copy_file
from torchport.results.port import WrittenFile

NOTHING: Mapping[Path, Path] = MappingProxyType({})
# What Python, editors and tools leave in passing, nobody's result.
BYPRODUCTS = frozenset(
    ("__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git", ".DS_Store")
)
MOST_LOOKED_AT = 200_000  # entries of linked folders, in looking for changes


class View:
    """One run's own copy of the user's folder.

    It is the process's that made it: what is remembered to tell changes is not on disk.
    """

    def __init__(self, folder: Path, place: Path, entries: dict[str, Entry], made: int) -> None:
        """`from_folder` does this."""
        self.folder = Path(os.path.abspath(folder))
        self.place = place
        self._real = os.path.realpath(folder)
        self._entries = entries
        self._made = made

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        place: Path,
        apart_from: Path,
        replace: Mapping[Path, Path] = NOTHING,
        real: Iterable[Path] = (),
        budget: Budget | None = None,
    ) -> View:
        """Mirror `folder` at `place`, whose parent exists; `apart_from` (the output folder) is left out.

        `replace` maps paths relative to `folder`, which need not exist, to the files that stand there instead. `real`
        are paths, relative as well, that must not be links: the script, the folder that it is started in.
        Raises TorchportError where the view cannot be made; then, and after Ctrl-C, nothing of it is left.
        """
        source, target = os.path.realpath(folder), os.path.realpath(place)
        if os.path.lexists(target):
            raise TorchportError(f"there is something at {target} already", hint="Give another with --out.")
        out = os.path.realpath(apart_from)
        owned = {os.path.normpath(path) for path in real}
        for relative in (*owned, *map(os.path.normpath, replace), *_relative(source, out, target)):
            if os.path.isabs(relative) or relative.startswith(".."):
                raise TorchportError(f"{relative} is not in the folder {source}")
            while relative := os.path.dirname(relative):
                owned.add(relative)
        mirror = Mirror(source, target, out, owned, budget or Budget())
        try:
            mirror.fill_place()
            for name, file in replace.items():
                _put(os.path.normpath(os.fspath(name)), os.fspath(file), source, target, mirror.entries)
            marker = target + ".made"
            with open(marker, "wb") as stream:  # the file system's clock, which the changes will be told by
                made = os.fstat(stream.fileno()).st_ctime_ns
            os.unlink(marker)
        except OSError as error:
            remove_view(target)
            raise TorchportError(
                f"cannot make a copy of {source} for a run: {error.strerror}: {error.filename}",
                hint="Each run gets its own copy of the folder. Give a place with room for it with --out.",
            ) from error
        except BaseException:
            remove_view(target)
            raise
        return cls(folder, Path(target), mirror.entries, made)

    def map_into_view(self, path: Path) -> Path:
        """Where a path of the original folder is in the view; others, and those left out, as they are."""
        absolute = os.path.abspath(path)
        for root in (str(self.folder), self._real):
            for spelling in (absolute, os.path.realpath(path)):
                relative = os.path.relpath(spelling, root)
                if relative != ".." and not relative.startswith("../"):
                    place = self.place / relative
                    return place if os.path.lexists(place) or not os.path.lexists(spelling) else path
        return path

    def restore_paths(self, text: str) -> str:
        """A path, or a text that names places in the view, in the user's own paths."""
        spellings = {str(self.place), os.path.realpath(self.place)}
        names = "|".join(sorted((re.escape(name) for name in spellings), key=len, reverse=True))
        return re.sub(rf"(?:{names})(?![\w-]|\.\w)", lambda match: str(self.folder), text)

    def list_written(self) -> list[WrittenFile]:
        """Files that the run created, changed or removed, by path; not folders, and not byproducts such as *.pyc."""
        found: dict[str, WrittenFile | None] = {}
        self._look("", None, found)
        for path, entry in self._entries.items():
            # A folder that went away is told by its files.
            if entry.kind is not Kind.FOLDER and path not in found:
                found[path] = WrittenFile(path, "removed")
        return sorted(row for row in found.values() if row is not None and not is_byproduct(row.path))

    def keep_written(self, place: Path) -> None:
        """Move what the run wrote to the folder `place`, and delete the view. Raises OSError."""
        place.mkdir(parents=True, exist_ok=True)
        for row in self.list_written():
            if row.change == "removed":
                continue
            source, target = self.place / row.path, place / row.path
            if not os.access(source.parent, os.W_OK):  # made so by the script; moving out of it is writing
                os.chmod(source.parent, stat.S_IRWXU)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                self._move_link(source, target, place)
            else:
                os.rename(source, target)
        remove_view(str(self.place))

    def changed_outside(self) -> list[str]:
        """Originals behind the view's links that were changed since, by whomever: what nothing could prevent."""
        changed = []
        left = MOST_LOOKED_AT
        for path, entry in self._entries.items():
            if entry.kind is not Kind.LINKED or is_byproduct(path):
                continue
            if entry.signature is not None:
                try:
                    state = os.stat(entry.text)
                    same = (*compute_signature(state), state.st_ctime_ns) == entry.signature
                except OSError:
                    same = False
                if not same:
                    changed.append(self._users(entry.text))
                continue
            for found in _changed_below(entry.text, self._made):
                left -= 1
                if left < 0:
                    return sorted(set(changed))
                if found:
                    changed.append(self._users(found))
        return sorted(set(changed))

    def _users(self, path: str) -> str:
        return os.path.join(self.folder, os.path.relpath(path, self._real))

    def _look(self, relative: str, beside: str | None, found: dict[str, WrittenFile | None]) -> None:
        """Compare one folder of the view with what was made; `beside` is the original of one that was a link."""
        names = set()
        with os.scandir(self.place / relative) as entries:
            for entry in entries:
                names.add(entry.name)
                path = os.path.join(relative, entry.name)
                known = self._entries.get(path)
                was = os.path.join(beside, entry.name) if beside else None
                if known is not None and known.kind in (Kind.LINKED, Kind.USERS_LINK):
                    was = os.path.realpath(os.path.join(self._real, os.path.dirname(path), known.text))
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in BYPRODUCTS:
                        found[path] = None
                        self._look(path, was if was and os.path.isdir(was) else None, found)
                elif entry.is_symlink():
                    said = os.readlink(entry.path)
                    same = said == known.text if known is not None and known.text else said == was
                    new = known is None and was is None
                    found[path] = None if same else WrittenFile(path, "created" if new else "changed")
                elif entry.is_file(follow_symlinks=False):
                    found[path] = _compared(path, entry.stat(), known, was)
        if beside:
            for name in os.listdir(beside):
                if name not in names:
                    path = os.path.join(relative, name)
                    found[path] = WrittenFile(path, "removed")

    def _move_link(self, source: Path, target: Path, place: Path) -> None:
        """A link that the run made, leading to what the run kept or else to the user's."""
        said = os.readlink(source)
        leads = os.path.normpath(source.parent / said)
        if not os.path.isabs(said) or not Path(leads).is_relative_to(self.place):
            os.symlink(said, target)
        else:
            os.symlink(os.path.relpath(leads, source.parent), target)
        source.unlink()


def is_byproduct(path: str) -> bool:
    """Whether a file is something that tools leave in passing, by its relative path."""
    parts = path.split("/")
    return not BYPRODUCTS.isdisjoint(parts) or parts[-1].endswith((".pyc", ".pyo", ".swp", "~"))


def remove_view(place: str) -> None:
    """Delete a view, folders that a script made read-only too. What links lead to stays. Raises OSError."""
    if not os.path.isdir(place):
        return
    try:
        shutil.rmtree(place)
    except PermissionError:
        for folder, _, _ in os.walk(place):  # from above: a folder is opened before it is gone into
            os.chmod(folder, stat.S_IRWXU)
        shutil.rmtree(place)


def _relative(root: str, *paths: str) -> list[str]:
    """Those of the paths that are below `root`, relative to it."""
    return [os.path.relpath(path, root) for path in paths if path.startswith(root.rstrip("/") + "/")]


def _put(relative: str, file: str, source: str, target: str, entries: dict[str, Entry]) -> None:
    """Let a copy of `file` stand at `relative`, with the permissions of what stood there."""
    place = os.path.join(target, relative)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.lexists(place):
        os.unlink(place)
    copied = copy_file(file, place)
    before = os.path.join(source, relative)
    if os.path.exists(before):
        os.chmod(place, stat.S_IMODE(os.stat(before).st_mode))
    entries[relative] = Entry(Kind.COPY, signature=copied)


def _compared(path: str, state: os.stat_result, known: Entry | None, was: str | None) -> WrittenFile | None:
    if known is not None and known.kind is Kind.COPY:
        same = compute_signature(state) == known.signature
    else:
        # Once a link, or below one: a copy of the original has its times.
        try:
            before = os.stat(was) if was else None
        except OSError:
            before = None
        if before is None:
            return WrittenFile(path, "created", state.st_size)
        same = compute_signature(state)[:2] == compute_signature(before)[:2]
    return None if same else WrittenFile(path, "changed", state.st_size)


def _changed_below(folder: str, since: int) -> Iterator[str]:
    """For each entry of a folder and those in it "", or its path where it was changed after `since`."""
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            yield place if os.stat(place).st_ctime_ns > since else ""
            with os.scandir(place) as entries:
                for entry in entries:
                    if is_byproduct(entry.name) or entry.is_symlink():
                        continue
                    if entry.is_dir():
                        waiting.append(entry.path)
                    else:
                        yield entry.path if entry.stat().st_ctime_ns > since else ""
        except FileNotFoundError:
            yield place
        except PermissionError:
            continue  # the script is no better off
