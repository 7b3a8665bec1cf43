"""The lines of a log file: text of any size in UTF-8 or UTF-16, plain or in gzip."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO, cast

from torchport.errors import TorchportError

_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 18  # characters; a longer line is cut behind a progress bar or an object
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b\a"))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file, with their ends. Raises TorchportError for what is no text or cannot be read."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _MAGIC
            file.seek(0)
            with gzip.GzipFile(fileobj=file) if packed else file as stream:
                head = stream.read(4096)
                stream.seek(0)
                text = io.TextIOWrapper(cast(IO[bytes], stream), _encoding(path, head), errors="replace", newline="\n")
                yield from _cut(text)
    except (OSError, EOFError, zlib.error) as error:
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
