"""Unified diffs of bytes that `patch` and `git apply` accept."""

from __future__ import annotations

import difflib
import re

_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")


def unified_diff(before: bytes, after: bytes, path: str) -> bytes:
    """The difference of two versions of a file; empty where there is none."""
    name = path.encode("utf-8", "surrogateescape")
    lines = difflib.diff_bytes(
        difflib.unified_diff, _LINE.findall(before), _LINE.findall(after), b"a/" + name, b"b/" + name, lineterm=b"\n"
    )
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)
