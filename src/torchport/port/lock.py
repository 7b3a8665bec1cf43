"""One port at a time in an output folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from torchport.errors import TorchportError

LOCK = ".lock"


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Hold the lock of the folder `out` (made where it is missing) for the block.

    The kernel holds it for our open file, not the file's presence: it is free as soon as this process ends,
    by SIGKILL too, and programs that this process starts do not inherit it. Raises TorchportError where
    another process has it, and where the folder cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise TorchportError(
            f"cannot write into the output folder {out}: {error.strerror}", hint="Give another place with --out."
        ) from error
    try:
        _take(descriptor, out)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        # The file stays: deleting it would let a third process lock a new one while a second waits for this.
        os.close(descriptor)


def _take(descriptor: int, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise TorchportError(
                f"cannot lock the output folder {out}: {error.strerror}",
                hint="Its file system has no locks; give a place on another one with --out.",
            ) from error
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "of unknown number"
        raise TorchportError(
            f"another torchport port works in {out} (process {holder})",
            hint="Wait for it, or give this one a folder of its own with --out.",
        ) from error
