"""A source file as bytes, as text, and the way from a place in the syntax tree to bytes.

`ast` counts columns in UTF-8 bytes of a line. Files come in any encoding, with a byte order mark or without, with
LF, CRLF or CR; all of it has to survive an edit. So text is decoded once, only to be parsed, and every edit is
expressed in offsets of the original bytes.
"""

from __future__ import annotations

import ast
import bisect
import codecs
import functools
import itertools
import re
import tokenize
import warnings

from torchport.findings import Location

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OTHER_ENDS = "\v\f\x1c\x1d\x1e"  # at which str.splitlines ends a line, too
_ASYNC = re.compile(r"\basync\s*=")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


class SourceError(Exception):
    """The file cannot be read as Python. `code` is the finding's code, `line` and `column` count from 1."""

    def __init__(self, code: str, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.line = max(line, 1)
        self.column = max(column, 1)


class SourceText:
    """The bytes of one file, decoded as Python would.

    Raises SourceError (TP902) where the encoding is unknown, does not fit the bytes, or cannot be turned back into
    the same bytes (stateful encodings); such a file is never edited.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.encoding = _encoding(data)
        self._mark = next((len(mark) for mark in (codecs.BOM_UTF8, *UTF_16) if data.startswith(mark)), 0)
        body = data[self._mark :]
        try:
            self.text = body.decode(self.encoding)
        except (UnicodeError, LookupError) as error:  # some codecs, such as punycode, raise the plain UnicodeError
            raise SourceError("TP902", f"the bytes do not fit the file's encoding {self.encoding}: {error}") from error
        self.lines = _lines(self.text)
        self._ascii = len(self.text) == len(body) and self.text.isascii()
        pieces = self.lines if self._ascii else self._encoded()
        if not self._ascii and b"".join(piece for piece in pieces if isinstance(piece, bytes)) != body:
            raise SourceError("TP902", f"the encoding {self.encoding} does not give back the same bytes")
        self._starts = list(itertools.accumulate(map(len, pieces), initial=self._mark))

    def _encoded(self) -> list[bytes]:
        try:
            return [line.encode(self.encoding) for line in self.lines]
        except UnicodeError as error:
            raise SourceError("TP902", f"the encoding {self.encoding} does not give back the text: {error}") from error

    @functools.cached_property
    def newline(self) -> str:
        """The line end of the first line; LF where there is only one line."""
        first = self.lines[0] if self.lines else ""
        return first[len(first.rstrip("\r\n")) :] or "\n"

    def parse(self) -> ast.Module:
        """The syntax tree. Raises SourceError (TP901, TP902) for what this Python cannot parse."""
        if self.encoding.startswith("utf-16"):
            raise SourceError("TP902", "Python does not read UTF-16")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes and the like are the script's own business
                return ast.parse(self.text)
        except SyntaxError as error:
            place = f": {error.text.strip()[:80]}" if error.text else ""
            if _ASYNC.search(error.text or ""):
                place += " (async is a word of Python since 3.7; torch calls the argument non_blocking)"
            raise SourceError("TP901", f"{error.msg}{place}", error.lineno or 1, error.offset or 1) from error
        except ValueError as error:  # NUL bytes, lone surrogates
            raise SourceError("TP901", str(error)) from error
        except (RecursionError, MemoryError) as error:
            raise SourceError("TP901", "the code is nested too deeply to be parsed") from error

    def position_to_offset(self, line: int, column: int) -> int:
        """The byte offset of a place in the syntax tree: `line` from 1, `column` in UTF-8 bytes from 0."""
        start = self._starts[line - 1]
        if self._ascii or self.encoding == "utf-8":
            return start + column
        prefix = self.lines[line - 1].encode("utf-8")[:column].decode("utf-8")
        return start + len(prefix.encode(self.encoding))

    def span(
        self, node: ast.expr | ast.stmt | ast.alias | ast.keyword | ast.arg | ast.ExceptHandler | ast.pattern
    ) -> tuple[int, int]:
        """The byte range of a node."""
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError("the node has no position")
        return self.position_to_offset(node.lineno, node.col_offset), self.position_to_offset(
            node.end_lineno, node.end_col_offset
        )

    def decode_range(self, start: int, end: int) -> str:
        """The text of a byte range."""
        return self.data[start:end].decode(self.encoding, "replace")

    def line_at(self, offset: int) -> tuple[int, int]:
        """The line number from 1 and the byte offset at which that line starts."""
        index = min(max(bisect.bisect_right(self._starts, offset) - 1, 0), max(len(self.lines) - 1, 0))
        return index + 1, self._starts[index]

    def to_location(self, start: int, end: int) -> Location:
        """The byte range as lines and columns for people."""
        line, line_start = self.line_at(start)
        end_line, end_start = self.line_at(end)
        if self._ascii:  # a byte is a character: nothing of a line of a million of them has to be looked at
            return Location(self.path, line, start - line_start + 1, end_line, end - end_start + 1)
        return Location(
            self.path,
            line,
            len(self.decode_range(line_start, start)) + 1,
            end_line,
            len(self.decode_range(end_start, end)) + 1,
        )


def _lines(text: str) -> list[str]:
    """The lines as Python's parser counts them, with their ends: form feeds and the like end none."""
    if text.isascii() and not any(end in text for end in _OTHER_ENDS):
        return text.splitlines(keepends=True)
    return [line for line in _LINE.findall(text) if line]


def _encoding(data: bytes) -> str:
    """The encoding by byte order mark and PEP 263 cookie, as the codec's canonical name."""
    if data.startswith(UTF_16):
        return "utf-16-le" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    first_lines = iter(re.findall(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)", data[:2000])[:2])
    try:
        name, _ = tokenize.detect_encoding(lambda: next(first_lines, b""))
    except SyntaxError as error:
        raise SourceError("TP902", str(error.msg)) from error
    return "utf-8" if name == "utf-8-sig" else codecs.lookup(name).name
