"""Exceptions that Python prints: the line that says what was raised, and the last place of the user's before it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from torchport.diagnose.marks import find_end_of_marks, is_marks
from torchport.diagnose.quoting import remove_quoted_text

HEAD = b"Traceback (most recent call last)"
# Python prints this above the traceback of an exception that it goes on after, in __del__ and in threads of its own.
_IGNORED = b"Exception ignored in"
# Ray's head of an exception of another process, which follows with its traceback.
_WRAPPED = b"RayTaskError("
LONGEST = 400  # lines of a traceback
MOST = 400  # exceptions of one file; what comes after them is the same over and over
_FRAME = re.compile(rb'^\s+File "([^"]{1,300})", line (\d{1,7})')
_INSTALLED = re.compile(rb"(?:site|dist)-packages/([A-Za-z0-9_]{1,60})")
_NOT_THEIRS = (b"site-packages", b"dist-packages", b"/lib/python", b"<frozen", b"torchport/")
# Dates and times before a line: its digits are other ones in each line of one traceback.
_STAMP = re.compile(rb"\d{1,4}(?:[-:/., T_]{1,2}\d{1,9}){1,8}")
_EXCEPTION = re.compile(rb"(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S")


@dataclasses.dataclass(frozen=True, slots=True)
class Raised:
    """The lines from `head` to `line`, of which the last says `text`; `at` is FILE:LINE of the user's and `package` the
    installed one that has raised it, "" for none."""

    head: int
    line: int
    text: bytes
    at: str = ""
    package: str = ""


class ExceptionReader:
    """The tracebacks of one file, block by block; one may go on in the next block."""

    def __init__(self) -> None:
        self._open: list[_Traceback] = []
        self._before = b""
        self._found = 0
        self._frames: _Traceback | None = None  # frames whose head is cut off

    def find_exceptions(self, lines: Sequence[bytes], first: int) -> Iterator[Raised]:
        """Each exception that ends in these lines; `first` is the number of `lines[0]`.

        An exception whose traceback is cut off, or was never printed, is its own head.
        """
        for number, line in enumerate(lines, first):
            if self._found >= MOST:
                return
            at = line.find(HEAD)
            prefix = line[:at].rpartition(b"\r")[2] if at >= 0 else b""
            if at >= 0 and is_marks(prefix):
                self._open = [one for one in self._open if one.prefix != _plain(prefix)]
                self._open.append(_Traceback(number, prefix, ignored=_IGNORED in self._before))
                self._before = line
                continue
            for one in self._open:
                if (text := one.feed_line(line, number)) is not None:
                    self._open = [other for other in self._open if other is not one]
                    if text and not one.ignored:
                        self._found += 1
                        yield Raised(one.head, number, text, one.place, one.package)
                    break
                if one.has_taken:
                    break
            else:
                if b'  File "' in line:
                    self._frames = self._frames or _Traceback(number, b"", ignored=False)
                    self._frames.take_frame(line[line.find(b'  File "') :])
                if b"Error: " in line or b"Exception: " in line:
                    found = find_exception(line)
                    if found and _IGNORED not in self._before:
                        self._found += 1
                        frames, self._frames = self._frames, None
                        if frames is None or number - frames.head > LONGEST:
                            frames = _Traceback(number, b"", ignored=False)
                        yield Raised(frames.head, number, found, frames.place, frames.package)
            if line:
                self._before = line


def find_exception(line: bytes) -> bytes:
    """The exception that a line begins with, behind marks of launchers; empty for none."""
    found = _EXCEPTION.search(line, 0, 400)
    if found is None or not is_marks(line[: found.start()]):
        return b""
    said = remove_quoted_text(line.decode("utf-8", "replace"))
    return line[found.start() :].rstrip() if found.group().decode() in said else b""


def _plain(prefix: bytes) -> bytes:
    return _STAMP.sub(lambda match: b"0" * len(match.group()), prefix)


class _Traceback:
    def __init__(self, head: int, prefix: bytes, *, ignored: bool) -> None:
        self.head = head
        self.prefix = _plain(prefix)
        self.ignored = ignored
        self.place = ""
        self.package = ""
        self.has_taken = False  # whether the last line was one of the traceback

    def feed_line(self, line: bytes, number: int) -> bytes | None:
        """The exception, where this line says it; empty where there will be none; None where the traceback goes on."""
        self.has_taken = False
        if number - self.head > LONGEST:
            return b""
        body = line
        if self.prefix:
            if _plain(line[: len(self.prefix)]).rstrip() != self.prefix.rstrip():
                return None  # of another rank, between
            body = line[len(self.prefix) :]
        elif line[:1] in b"[(" and find_end_of_marks(line):
            return None  # of a rank, where this one has no mark
        self.has_taken = True
        if self.take_frame(body):
            return None
        if not body.strip() or body[:1].isspace() or _WRAPPED in body:
            return None
        return body.rstrip()

    def take_frame(self, body: bytes) -> bool:
        """Note the place that a line of a traceback names; False for another line."""
        match = _FRAME.match(body)
        if match is None:
            return False
        path = match.group(1)
        if not any(word in path for word in _NOT_THEIRS):
            self.place = f"{path.decode('utf-8', 'replace')}:{match.group(2).decode()}"
        installed = _INSTALLED.search(path)
        self.package = installed.group(1).decode() if installed else ""
        return True
