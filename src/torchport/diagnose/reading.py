"""Any file or pipe as blocks of whole lines in UTF-8, in bounded memory."""

from __future__ import annotations

import codecs
import io
import os
import re
from collections.abc import Iterator
from typing import BinaryIO

BLOCK = 1 << 20
LONGEST = 8192  # bytes of a line; a longer one is cut into several
NARROWEST, WIDEST = 60, 260  # columns of terminals
FEW = 4  # letters of a line that only parts others
HEAD = 8  # letters by which two lines begin alike
MOST = 0.9  # of the lines of that width, that are cut
CUT = 3  # lines of the width of a terminal, from which on a text is a copy of its screen
# A text has few of these; a file of numbers, an image or a program has many.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b\a"))
_COLOUR = re.compile(rb"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class NotTextError(Exception):
    """The file is not a text; the message says what it looks like."""


def read_blocks(stream: BinaryIO, limit: int) -> Iterator[bytes]:
    """The text of `stream`, at most `limit` bytes of it, as blocks that end with a line.

    UTF-16 and UTF-32 come out as UTF-8; bytes of other encodings stay what they are. A pipe gives a block as soon as
    something is there. Raises NotTextError for what is no text, and OSError.
    """
    first = _read(stream, min(BLOCK, limit))
    is_small = len(first) < min(BLOCK, limit)
    decoder = _decoder(first)
    kept, left = b"", limit
    data = first
    while data:
        left -= len(data)
        text = kept + (data if decoder is None else decoder.decode(data).encode("utf-8", "replace"))
        end = text.rfind(b"\n") + 1
        if end == 0 and len(text) > LONGEST:
            end = len(text)
        if end:
            yield join_wrapped_lines(_cut(text[:end])) if is_small else _cut(text[:end])
        kept = text[end:]
        data = _read(stream, min(BLOCK, left))
    if kept:
        yield _cut(kept)


def join_wrapped_lines(text: bytes) -> bytes:
    """The text with the lines put together that a terminal has cut at its width, as copies of its screen have them.

    They are known by several lines of one length which none exceeds, and which go on with something else: rows of a
    table, and steps of a training, begin alike. Empty lines stand for the parts, so that each line keeps its number.
    """
    lines = text.split(b"\n")
    lengths = [len(line.decode("utf-8", "replace")) for line in lines]
    width = max(lengths, default=0)
    if not NARROWEST <= width <= WIDEST:
        return text
    full = [at for at, length in enumerate(lengths[:-1]) if length == width and len(set(lines[at])) > FEW]
    cut = [at for at in full if lines[at + 1].strip() and _head(lines[at]) != _head(lines[at + 1])]
    if len(cut) < CUT or len(cut) < MOST * len(full):
        return text
    for at in reversed(cut):
        lines[at : at + 2] = [lines[at] + lines[at + 1], b""]
    return b"\n".join(lines)


def _head(line: bytes) -> bytes:
    """How a line begins, without its digits."""
    return line[:HEAD].translate(None, b"0123456789")


def _read(stream: BinaryIO, size: int) -> bytes:
    """What is there of `size` bytes; a pipe need not be full."""
    if size <= 0:
        return b""
    if isinstance(stream, io.FileIO | io.BufferedReader):
        return os.read(stream.fileno(), size)
    return stream.read(size)  # packed, or not a file of the system's, as in tests


def _decoder(first: bytes) -> codecs.IncrementalDecoder | None:
    """What turns UTF-16 or UTF-32 into text; None where the bytes are ASCII's kin."""
    for mark, name in _MARKS.items():
        if first.startswith(mark):
            return codecs.getincrementaldecoder(name)("replace")
    head = first[:4096]
    zeros = head.count(0)
    if zeros > len(head) // 3:  # ASCII in UTF-16 without a mark: every second byte
        for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            if head[start::2].count(0) == zeros:
                return codecs.getincrementaldecoder(name)("replace")
    strange = len(head) - len(head.translate(None, _CONTROLS))
    if strange > 8 + len(head) // 50:
        raise NotTextError("it is binary, not text")
    return None


def _cut(text: bytes) -> bytes:
    """The same lines without colours, none longer than LONGEST."""
    if b"\x1b[" in text:
        text = _COLOUR.sub(b"", text)
    if len(text) < LONGEST or max(map(len, text.split(b"\n"))) <= LONGEST:
        return text
    pieces = []
    for line in text.split(b"\n"):
        pieces += [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
    return b"\n".join(pieces)
