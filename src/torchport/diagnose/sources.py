"""The logs that a path stands for: a file, all of a folder, stdin; packed ones too."""

from __future__ import annotations

import lzma
import os
import stat
from pathlib import Path, PurePath
from typing import BinaryIO

from torchport.diagnose.logs import Log, scan_log
from torchport.diagnose.quoting import PYTHON, kind_of
from torchport.diagnose.reading import NotTextError
from torchport.errors import TorchportError
from torchport.logs.opening import open_log

FILES = 4096  # of a folder


def scan_stdin(stdin: BinaryIO | None, limit: int) -> Log:
    """The log that is piped. Raises TorchportError where nothing is, and for what is no text."""
    if stdin is None:
        raise TorchportError("there is no stdin to read", hint="Give a log file.")
    return _scan("stdin", stdin, limit)


def scan_file(path: str, limit: int) -> Log:
    """One file. Raises TorchportError for one that is missing, cannot be read, is no log or no text."""
    if (kind := kind_of(PurePath(path))) and Path(path).exists():
        hint = f"Give what a run has printed. `torchport diagnose - < {path}` reads it all the same."
        if kind == PYTHON:
            hint = f"`torchport run {path}` runs it and says why it fails; or give what it has printed."
        raise TorchportError(f"{path} is {kind}, no log", hint=hint)
    try:
        with open_log(path) as stream:
            return _scan(path, stream, limit)
    except (OSError, EOFError, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise TorchportError(
            f"cannot read {path}: {why}", hint="Give a log file, a folder of logs, or - for stdin."
        ) from error


def scan_folder(folder: Path, limit: int) -> tuple[list[Log], list[str]]:
    """All regular files below, and in a sentence each what could not be read or is no log.

    Raises TorchportError where no log is left.
    """
    logs, unread = [], []
    found = sorted(os.path.join(where, name) for where, _, files in os.walk(folder) for name in files)
    names = [name for name in found if not kind_of(PurePath(name))]
    for name in names[:FILES]:
        short = os.path.relpath(name, folder)
        try:
            if stat.S_ISREG(os.stat(name).st_mode):
                with open_log(name) as stream:
                    logs.append(scan_log(stream, short, limit))
        except (OSError, EOFError, lzma.LZMAError, NotTextError) as error:
            unread.append(f"{short} was not read: {getattr(error, 'strerror', None) or error}")
    if len(names) > FILES:
        unread.append(f"{len(names) - FILES} of {len(names)} files were not read: no more than {FILES} are")
    if others := len(found) - len(names):
        unread.append(f"{others} of {len(found)} files were not read: they are sources, documents or configurations")
    if not logs:
        raise TorchportError(f"{folder} has no log that can be read", hint="Give the folder of the ranks' logs.")
    return logs, unread


def _scan(name: str, stream: BinaryIO, limit: int) -> Log:
    try:
        return scan_log(stream, name, limit)
    except NotTextError as error:
        raise TorchportError(
            f"{name} cannot be diagnosed: {error}",
            hint="Give the text that the script printed: `python train.py > log.txt 2>&1`.",
        ) from error
