"""Make a link of a run's view a thing of the view's own, before something is written through it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import shutil
import stat
from collections.abc import Iterator

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
_count = itertools.count()


def replace_links(view: str, path: str, last: bool = True, content: bool = True) -> None:
    """Replace the links on the way to `path` by copies, so that writing there stays in the folder `view`.

    A folder becomes a folder of links to what is in it. `last` False leaves the last part of the path alone, as
    renaming and removing do. With `content` False a file that is opened to be emptied is not copied. Links that
    lead to another place of the view are followed. Paths outside of the view are none of our business. Raises
    OSError where a copy cannot be made: then the write must not happen either.
    """
    followed = 0
    waiting = _parts(view, path)
    place = view
    while waiting:
        place = os.path.normpath(os.path.join(place, waiting.pop(0)))
        if not _below(place, view):
            return
        target = _target(place) if waiting or last else None
        if target is None:
            continue
        leads = os.path.normpath(os.path.join(os.path.dirname(place), target))
        if _below(leads, view) and leads != view:
            followed += 1
            if followed > 40:  # as the kernel: a loop
                return
            waiting = [*_parts(view, leads), *waiting]
            place = view
            continue
        if not _break(view, place, content or bool(waiting)):
            return


def _target(place: str) -> str | None:
    """Where a link leads; None where there is none, or another rank has put a copy in its place."""
    try:
        return os.readlink(place)
    except OSError:
        return None


def _parts(view: str, path: str) -> list[str]:
    relative = os.path.relpath(path, view)
    return [] if relative == "." else relative.split(os.sep)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _break(view: str, place: str, content: bool) -> bool:
    """Put a copy in the place of one link; whether there is something now that the way can go on through."""
    with _alone(view):
        if not os.path.islink(place):
            return True  # another rank was first
        try:
            state = os.stat(place)
        except FileNotFoundError:
            # Dangling: opening it would make the file there, so without the link it is made here.
            os.unlink(place)
            return False
        if not stat.S_ISDIR(state.st_mode) and not stat.S_ISREG(state.st_mode):
            return False  # a device, a pipe: writing there is what the link is for
        aside = f"{view}.{os.getpid()}.{next(_count)}"
        try:
            if stat.S_ISDIR(state.st_mode):
                _unfold(place, aside, state)
                _exchange(aside, place)
            else:
                _copy(place, aside, state, content)
                os.rename(aside, place)
        finally:
            if os.path.islink(aside) or os.path.isfile(aside):
                os.unlink(aside)
            elif os.path.isdir(aside):
                shutil.rmtree(aside)
    return True


def _copy(place: str, aside: str, state: os.stat_result, content: bool) -> None:
    if content:
        shutil.copyfile(place, aside)
    else:
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.chmod(aside, stat.S_IMODE(state.st_mode))
    if content:  # the time tells later whether it was changed
        os.utime(aside, ns=(state.st_atime_ns, state.st_mtime_ns))


def _unfold(place: str, aside: str, state: os.stat_result) -> None:
    leads = os.path.realpath(place)
    os.mkdir(aside)
    for name in os.listdir(leads):
        os.symlink(os.path.join(leads, name), os.path.join(aside, name))
    os.chmod(aside, stat.S_IMODE(state.st_mode) | stat.S_IRWXU)


def _exchange(one: str, other: str) -> None:
    """Let two names change places at once: others who read through the link never find nothing."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)  # glibc 2.28
    names = (os.fsencode(one), os.fsencode(other))
    if exchange is None or exchange(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) != 0:
        # Not every file system can (NFS): then there is a moment without.
        os.unlink(other)
        os.rename(one, other)


@contextlib.contextmanager
def _alone(view: str) -> Iterator[None]:
    """One process and thread at a time: ranks open the same log in the same moment."""
    descriptor = os.open(view, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
