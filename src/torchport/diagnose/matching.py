"""Find the lines of a log that a row of `knowledge/errors` speaks of.

Rows are many and lines more, so most lines are left aside by their shape: the line without its digits. Training prints
a few shapes over and over. In each shape the words are looked for by one token each, so that their number costs
nothing, and only where a word is, a pattern is tried.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

from torchport.knowledge.errors import Row, rows

KEPT = 40  # lines of one row in one file; of more, only the number
TEXT = 400  # characters of a line that are kept
EXAMINED = 300  # lines of one shape in one block; what comes after them in it is the same over and over
_DIGITS = b"0123456789"
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_BLANKS = bytes(byte if byte in _LETTERS or byte == 10 else 32 for byte in range(256))


@dataclasses.dataclass(frozen=True, slots=True)
class Hit:
    """A row and a line that it speaks of; lines count from 1."""

    row: Row
    line: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Word:
    place: int
    word: bytes
    shape: bytes
    rows: tuple[Row, ...]


class Matcher:
    """Finds the rows in one file, block by block; `counts` says how many lines of each row there were."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.lines = 0

    def hits(self, block: bytes, lines: Sequence[bytes]) -> Iterator[Hit]:
        """The lines of a block of whole lines, which are `lines`, that rows speak of, in order."""
        shapes = block.translate(None, _DIGITS).split(b"\n")
        wanted = _wanted(set(shapes))
        if wanted:
            examined = dict.fromkeys(wanted, 0)
            for number, shape in enumerate(shapes):
                if shape in wanted and examined[shape] < EXAMINED:
                    examined[shape] += 1
                    yield from self._of_line(lines[number], self.lines + number + 1, wanted[shape])
        self.lines += len(lines) - (not lines[-1])

    def _of_line(self, line: bytes, number: int, words: tuple[_Word, ...]) -> Iterator[Hit]:
        text = ""
        seen: set[str] = set()
        for word in words:
            if word.word not in line:
                continue
            for row in word.rows:
                count = self.counts.get(row.name, 0)
                if row.name in seen:
                    continue
                text = text or line.decode("utf-8", "replace").rstrip("\r")
                if row.matches(text):
                    seen.add(row.name)
                    self.counts[row.name] = count + 1
                    if count < KEPT:
                        yield Hit(row, number, text[:TEXT])


def _wanted(shapes: set[bytes]) -> Mapping[bytes, tuple[_Word, ...]]:
    """The shapes in which words stand, with these words."""
    text = b"\n".join(shapes)
    anchors = _by_anchor()
    find = frozenset(anchors).intersection
    found: dict[bytes, tuple[_Word, ...]] = {}
    for shape, tokens in zip(text.split(b"\n"), text.translate(_BLANKS).split(b"\n"), strict=True):
        if here := find(tokens.split()):
            words = [word for anchor in here for word in anchors[anchor] if word.shape in shape]
            if words:
                found[shape] = tuple(sorted(words, key=lambda word: word.place))
    return found


@functools.cache
def _by_anchor() -> Mapping[bytes, tuple[_Word, ...]]:
    """All words by the token that they are looked for by: the longest, as long ones are rare.

    What is around a word may go on with its first and its last token; the others stand in a text as they are here.
    """
    by_anchor: dict[bytes, list[_Word]] = {}
    for word in _words():
        tokens = word.shape.translate(_BLANKS).split()
        by_anchor.setdefault(max(tokens[1:-1] or tokens, key=len), []).append(word)
    return {anchor: tuple(words) for anchor, words in by_anchor.items()}


@functools.cache
def _words() -> tuple[_Word, ...]:
    by_word: dict[str, list[Row]] = {}
    for row in rows().values():
        for word in row.words:
            by_word.setdefault(word, []).append(row)
    return tuple(
        _Word(place, word.encode(), word.encode().translate(None, _DIGITS), tuple(found))
        for place, (word, found) in enumerate(by_word.items())
    )
