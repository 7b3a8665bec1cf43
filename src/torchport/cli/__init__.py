"""The command line: finds the commands, parses, and turns the outcome into an exit code.

A command is one module `torchport/cli/<name>.py` and is found by scanning this folder:

- its docstring is the help text; the first line is the summary in `torchport --help`, examples come next;
- `add_arguments(parser)` adds its arguments to an `argparse.ArgumentParser`;
- `run_command(arguments) -> int` does the work and returns the exit code;
- `PASSES_ARGUMENTS = True` (optional) says that its first positional argument is a script of the user's (or its option
  with the dest `module` a module) and that words behind it are the script's: those that the command's options do not
  know, and all that follow the first `--`. They arrive in their order as the list `arguments.passed`.

Every command also gets `arguments.json`, `arguments.debug` and `arguments.quiet`. Only the chosen command's
module is imported, so that one command's imports never slow another.

Data goes to stdout, messages to stderr. `EXIT_CODES` has the exit codes.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import importlib.util
import io
import os
import pkgutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from torchport import __version__
from torchport.errors import TorchportError

USAGE = 2
INTERNAL_ERROR = 3
UNDECIDED = 4
SIGNALLED = 128
INTERRUPTED = 130
BROKEN_PIPE = 141
EXIT_CODES = {
    0: "done, or clean",
    1: "findings; the port does not hold, the runs do not agree, or a cause is named",
    USAGE: "usage or configuration: a wrong argument, a missing or damaged file, no device",
    INTERNAL_ERROR: "a bug in torchport",
    UNDECIDED: "undecided (`port`, `compare`), or a failure that is not known (`diagnose`)",
    INTERRUPTED: "Ctrl-C; 128 + n for another signal n; `run` ends as the script does",
}


class Command(Protocol):
    """What a module in this folder provides (see the package docstring)."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments to `parser`."""

    def run_command(self, arguments: argparse.Namespace) -> int:
        """Do the work; return the exit code."""


def command_names() -> tuple[str, ...]:
    """Names of all commands, sorted, without importing any of them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: `sys.argv[1:]`) and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell closed it: `torchport ... >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  open until the end
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    try:
        known = words and words[0] in command_names()
        try:
            return _run_command(words[0], words[1:]) if known else _run_without_command(words)
        finally:
            sys.stdout.flush()  # here, also when argparse leaves: at exit nobody could catch the error
    except OSError as error:
        # The interpreter must find a stdout that it can flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # `torchport ... | head`: leave quietly
            return BROKEN_PIPE
        print(f"torchport: the output cannot be written: {error.strerror}", file=sys.stderr)
        return USAGE


def _run_command(name: str, words: list[str]) -> int:
    debug = "--debug" in _own_words(words)
    try:
        command = cast(Command, importlib.import_module(f"{__name__}.{name}"))
        return command.run_command(_parse(name, command, words))
    except TorchportError as error:
        if debug:
            traceback.print_exc()
        print(f"torchport {name}: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"torchport {name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as left:
        if isinstance(left.code, int) and left.code > SIGNALLED:
            print(f"torchport {name}: ended by {signal.Signals(left.code - SIGNALLED).name}", file=sys.stderr)
        raise
    except BrokenPipeError:
        raise
    except OSError as error:  # no place to write to, no permission, a full disk: the machine's, not ours
        if debug:
            traceback.print_exc()
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        where = f"{' -> '.join(names)}: " if names else ""
        print(f"torchport {name}: {where}{error.strerror or error}", file=sys.stderr)
        print("  Give a place that can be written and has room; --debug shows what was being done.", file=sys.stderr)
        return USAGE
    except Exception as error:  # whatever a package let through is our bug: say so, with exit code 3
        if debug:
            traceback.print_exc()
        print(
            f"torchport {name}: internal error, {type(error).__name__}: {error}\n"
            f"  This is a bug in torchport {__version__}. Please report it with the traceback in "
            f"{_save_traceback(name)}",
            file=sys.stderr,
        )
        return INTERNAL_ERROR


def _parse(name: str, command: Command, words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"torchport {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    common = parser.add_argument_group("common options")
    common.add_argument("--json", action="store_true", help="print data as JSON on stdout")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    common.add_argument("-q", "--quiet", action="store_true", help="no messages, only data and errors")
    if not getattr(command, "PASSES_ARGUMENTS", False):
        return parser.parse_intermixed_args(words)
    from torchport.launch import refuse_misspelt, refuse_shared, split_words  # here: other commands must not pay for it

    parts = split_words(parser, words)
    refuse_shared(name, parser, parts)
    refuse_misspelt(name, parser, words, parts)
    arguments = parser.parse_args(parts.own)
    arguments.passed = list(parts.passed)
    return arguments


def _own_words(words: list[str]) -> list[str]:
    """The words in front of the first `--`."""
    return words[: words.index("--")] if "--" in words else words


def _run_without_command(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="torchport",
        usage="torchport [-h] [--version] COMMAND ...",
        description="Port PyTorch/CUDA training code to Ascend NPUs and prove the port on any machine.",
        epilog=_command_table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"torchport {__version__}")
    if not words:
        parser.print_help()
        return 0
    known = command_names()
    close = difflib.get_close_matches(words[0], known, n=1)
    if not words[0].startswith("-"):
        parser.error(
            f"there is no command {words[0]!r}; "
            + (f"did you mean {close[0]!r}?" if close else f"the commands are {', '.join(known)}.")
        )
    parser.parse_args(words)
    return 0


def _command_table() -> str:
    names = command_names()
    width = max(map(len, names), default=0)
    rows = [f"  {name:<{width}}  {_summary(name)}" for name in names]
    codes = [f"  {code:<{width}}  {meaning}" for code, meaning in EXIT_CODES.items()]
    return "\n".join(
        ["commands:", *rows, "", "`torchport COMMAND --help` explains one command.", "", "exit codes:", *codes]
    )


def _summary(name: str) -> str:
    """First line of the command's docstring, read from its source so that nothing is imported."""
    spec = importlib.util.find_spec(f"{__name__}.{name}")
    if spec is None or spec.origin is None:
        return ""
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_bytes())) or "").partition("\n")[0]


def _save_traceback(name: str) -> str:
    descriptor, path = tempfile.mkstemp(prefix=f"torchport-{name}-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as log:
        log.write(f"torchport {__version__}, python {sys.version}\n{sys.argv}\n\n{traceback.format_exc()}")
    return path
