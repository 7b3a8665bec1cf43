"""Exceptions that Python prints: the line that says what was raised, and the last place of the user's before it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HEAD = b"Traceback (most recent call last)"
LONGEST = 400  # lines of a traceback
_FRAME = re.compile(rb'^\s+File "([^"]{1,300})", line (\d{1,7})')
_NOT_THEIRS = (b"site-packages", b"dist-packages", b"/lib/python", b"<frozen", b"torchport/")


class Raised:
    """The tracebacks of one file, block by block; one may go on in the next block."""

    def __init__(self) -> None:
        self._open: list[_Traceback] = []

    def find_exceptions(self, lines: Sequence[bytes], first: int) -> Iterator[tuple[int, int, bytes, str]]:
        """Line number of the head, line number and text of the exception, and FILE:LINE of the user's ("" for none).

        `first` is the number of `lines[0]`.
        """
        if not self._open and not any(HEAD in line for line in lines):
            return
        for number, line in enumerate(lines, first):
            at = line.find(HEAD)
            if at >= 0:
                prefix = line[:at].rpartition(b"\r")[2]
                self._open = [one for one in self._open if one.prefix != prefix]
                self._open.append(_Traceback(number, prefix))
                continue
            for one in self._open:
                if (text := one.feed_line(line, number)) is not None:
                    self._open = [other for other in self._open if other is not one]
                    if text:
                        yield one.head, number, text, one.place
                    break


class _Traceback:
    def __init__(self, head: int, prefix: bytes) -> None:
        self.head = head
        self.prefix = prefix
        self.place = ""

    def feed_line(self, line: bytes, number: int) -> bytes | None:
        """The exception, where this line says it; empty where there will be none; None where the traceback goes on."""
        if number - self.head > LONGEST:
            return b""
        body = line
        if self.prefix:
            if line[:5] != self.prefix[:5]:
                return None  # of another rank, between
            body = line[len(self.prefix) :]
        if match := _FRAME.match(body):
            path = match.group(1)
            if not any(word in path for word in _NOT_THEIRS):
                self.place = f"{path.decode('utf-8', 'replace')}:{match.group(2).decode()}"
            return None
        return None if not body.strip() or body[:1].isspace() else body.rstrip()
