"""The one exception that the command line prints without a traceback."""

from __future__ import annotations


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
