"""The one exception that the command line prints without a traceback."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


class TorchportError(Exception):
    """Something the user can act on: a usage mistake, a missing file, a broken input.

    `message` says what happened, where and why; `hint` says what to do next. `exit_code` follows the table in
    design: 1 findings or divergence, 2 usage or configuration, 3 our bug.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


@contextlib.contextmanager
def name_path_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let an OSError of the block name `path`, which the block writes.

    Where a disk is full, the system names no file for a write, and Python names the source of a copy.
    """
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = os.fspath(path), None
        raise
