"""What speaks of errors and reports none: documents, sources, and what a log quotes of them.

Anything may be given to `diagnose`: a folder with a project in it, a README, what a test run prints. The same words
that tell of a failure in a log tell there how failures look.
"""

from __future__ import annotations

import re
from pathlib import PurePath

PYTHON = "Python source"
# Names that no log has. What is piped is read whatever it is.
_KINDS = {
    PYTHON: (".py", ".pyi", ".pyx"),
    "source code": (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".java", ".js", ".rs", ".go", ".sh", ".cmake"),
    "a document": (".md", ".rst", ".tex", ".html", ".htm"),
    "a configuration": (".toml", ".yaml", ".yml", ".ini", ".cfg"),
}
_KIND_OF = {ending: kind for kind, endings in _KINDS.items() for ending in endings}
# `as here`, and not glibc's version `GLIBC_2.34' nor what begins in one word and ends in another.
_QUOTED = re.compile(r"(?<![\w`])`(?![\s`])[^`]{0,600}(?<![\s`])`(?![\w`])")
_PASSED = re.compile(r"(?<!\S)(?:PASSED|SKIPPED|XFAIL)(?!\S)")
_FRAME = re.compile(rb'^((?:\[[\w-]{1,40}\]: ?)? {2,16})File "[^"]{1,400}", line \d{1,7}')


def kind_of(path: PurePath) -> str:
    """What a file is by its name where that is no log, such as PYTHON; "" where it may be one."""
    return _KIND_OF.get(path.suffix.lower(), "")


def remove_quoted_text(line: str) -> str:
    """The line without what it only quotes; "" for a row of a Markdown table and for pytest's of a test that passed."""
    words = line.strip()
    if (words[:1] == words[-1:] == "|" and words.count("|") > 2) or ("::" in line and _PASSED.search(line)):
        return ""
    return _QUOTED.sub("``", line) if line.count("`") > 1 else line


def is_source(line: bytes, before: bytes) -> bool:
    """Whether the line is the script's own text, which a traceback shows below a frame, deeper than it.

    Frames without a file (`<string>`) have none: the exception itself may follow.
    """
    frame = _FRAME.match(before)
    return frame is not None and line.startswith(frame.group(1) + b"  ")
