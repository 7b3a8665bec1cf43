"""Log files, plain or packed, and the lines of one: text of any size in UTF-8 or UTF-16."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import hashlib
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from torchport.errors import TorchportError

_PIECE = 1 << 18  # characters; a longer line is cut behind a progress bar or an object
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b\a"))
# By the first bytes of a file; rotated logs are packed, and keep any name.
_PACKED: Mapping[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


@contextlib.contextmanager
def open_log(path: str | Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked. Raises OSError."""
    with open(path, "rb", buffering=0) as stream:
        # A pipe or a terminal gives its first bytes once.
        first = stream.read(6) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else b""
        unpack = next((open_ for mark, open_ in _PACKED.items() if first and first.startswith(mark)), None)
        if unpack is None:
            if first:
                stream.seek(0)
            yield stream
            return
        stream.seek(0)
        with unpack(stream, "rb") as unpacked:
            yield unpacked


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file, with their ends. Raises TorchportError for what is no text or cannot be read."""
    try:
        with open_log(path) as stream:
            head = stream.read(4096)
            stream.seek(0)
            text = io.TextIOWrapper(stream, _encoding(path, head), errors="replace", newline="\n")
            yield from _cut(text)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TorchportError(
            f"cannot read the log {path}: {reason}", hint="A log is compared with a log, a recording with a recording."
        ) from error


def hash_file(path: Path) -> str:
    """The sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _encoding(path: Path, head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    strange = len(head) - len(head.translate(None, _CONTROLS))
    if strange > 8 + len(head) // 50:
        raise TorchportError(f"{path} is binary, not a printed log", hint="Give the text that the training printed.")
    return "utf-8-sig"


def _cut(text: TextIO) -> Iterator[str]:
    kept = ""
    while piece := text.readline(_PIECE):
        line, kept = kept + piece, ""
        if not line.endswith("\n") and len(line) < 2 * _PIECE:
            end = max(line.rfind("\r"), line.rfind("},") + 1) + 1
            line, kept = line[:end], line[end:]
        if line:
            yield line
    if kept:
        yield kept
