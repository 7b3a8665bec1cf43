"""Run a script as `python script.py ...` would, inside a process that has been prepared for it."""

from __future__ import annotations

import builtins
import dataclasses
import io
import os
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a script ended: its exit status, and for an exception its text and the script's line it came
    through."""

    status: int
    error: str = ""
    path: str = ""
    line: int = 0


def run_script(path: str, arguments: list[str]) -> Outcome:
    """Run the script at `path` as `__main__` with `sys.argv` = [path, *arguments].

    An uncaught exception is printed as the interpreter prints it, without our frames. What the script gave to
    `sys.exit` is in the outcome; a text was printed. KeyboardInterrupt propagates.
    """
    sys.argv[:] = [path, *arguments]
    folder = str(Path(path).resolve().parent)
    if sys.flags.safe_path:  # -P: the interpreter put nothing there
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=path, __builtins__=builtins, __cached__=None, __loader__=SourceFileLoader("__main__", path)
    )
    sys.modules["__main__"] = module  # for good: exit handlers and pickle look the script's names up there
    try:
        with io.open_code(str(Path(path).absolute())) as stream:
            code = compile(stream.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  running the user's script is the purpose
    except SystemExit as request:
        return _requested(request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if error.__traceback__ is not None:
            error.__traceback__ = error.__traceback__.tb_next  # without our own frame
        sys.excepthook(type(error), error, error.__traceback__)
        return _failed(error, path)
    return Outcome(0)


def _requested(request: SystemExit) -> Outcome:
    if request.code is None or isinstance(request.code, int):
        return Outcome((request.code or 0) & 0xFF)
    print(request.code, file=sys.stderr)
    return Outcome(1, str(request.code))


def _failed(error: BaseException, path: str) -> Outcome:
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if isinstance(error, SyntaxError) and error.filename:
        return Outcome(1, lines[-1], error.filename, error.lineno or 0)
    text = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"  # CANN's own sentence comes last
    folder = Path(path).resolve().parent
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path or is_own(Path(frame.filename), folder)
    ]
    return Outcome(1, text, own[-1].filename, own[-1].lineno or 0) if own else Outcome(1, text)


def is_own(path: Path, folder: Path) -> bool:
    """Whether a source file belongs to the script in `folder`, not to a package installed below it."""
    inside = Path(os.path.relpath(path.resolve(), folder.resolve())).parts
    return not {"..", "site-packages", "dist-packages"}.intersection(inside)
