"""Find the lines of a log that a row of `knowledge/errors` speaks of.

Rows are many and lines more, so most lines are left aside by their shape: the line without its digits. Training prints
a few shapes over and over. In each shape the words are looked for by one token each, so that their number costs
nothing, and only where a word is, a pattern is tried.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

from torchport.diagnose.quoting import is_source, remove_quoted_text
from torchport.knowledge.errors import Row, load_error_rows

KEPT = 40  # lines of one row in one file; of more, only the number
TEXT = 400  # characters of a line that are kept
EXAMINED = 300  # lines of one shape in one block; what comes after them in it is the same over and over
_DIGITS = b"0123456789"
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
# Words of all prose and all stacks: a token to look for is rather another one.
_EVERYDAY = frozenset(b"so of is not for that the be do does have this device memory operator tensor error NPU".split())
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
    text: str
    shape: bytes
    rows: tuple[Row, ...]


class Matcher:
    """Finds the rows in one file, block by block; `counts` says how many lines of each row there were."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.lines = 0
        self._before = b""

    def find_hits(self, block: bytes, lines: Sequence[bytes]) -> Iterator[Hit]:
        """The lines of a block of whole lines, which are `lines`, that rows speak of, in order."""
        shapes = block.translate(None, _DIGITS).split(b"\n")
        wanted = _wanted(set(shapes))
        if wanted:
            examined = dict.fromkeys(wanted, 0)
            for number, shape in enumerate(shapes):
                if shape in wanted and examined[shape] < EXAMINED:
                    examined[shape] += 1
                    if not is_source(lines[number], lines[number - 1] if number else self._before):
                        yield from self._of_line(lines[number], self.lines + number + 1, wanted[shape])
        whole = len(lines) - (not lines[-1])
        self.lines += whole
        self._before = lines[whole - 1] if whole else b""

    def _of_line(self, line: bytes, number: int, words: tuple[_Word, ...]) -> Iterator[Hit]:
        text = line.decode("utf-8", "replace").rstrip("\r")
        said = remove_quoted_text(text)
        seen: set[str] = set()
        for word in words:
            if word.text not in said:
                continue
            for row in word.rows:
                count = self.counts.get(row.name, 0)
                if row.name in seen:
                    continue
                if row.matches(said):
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
        for anchor in find(tokens.split()):
            for here, words in anchors[anchor]:
                if here in shape:
                    found[shape] = found.get(shape, ()) + words
    return {shape: tuple(sorted(words, key=lambda word: word.place)) for shape, words in found.items()}


@functools.cache
def _by_anchor() -> Mapping[bytes, tuple[tuple[bytes, tuple[_Word, ...]], ...]]:
    """All words by the token that they are looked for by and by their shape, which those of many codes share.

    What is around a word may go on with a token at its edge; the others stand in a text as they are here. Of these the
    one is taken that fewest other words have, and of such the longest, as long ones are rare.
    """
    by_shape: dict[bytes, list[_Word]] = {}
    for word in _words():
        by_shape.setdefault(word.shape, []).append(word)
    whole = {shape: _whole(shape) for shape in by_shape}
    usual = collections.Counter(token for tokens in whole.values() for token in set(tokens))
    by_anchor: dict[bytes, list[tuple[bytes, tuple[_Word, ...]]]] = {}
    for shape, words in by_shape.items():
        anchor = min(whole[shape], key=lambda token: (token in _EVERYDAY, usual[token], -len(token)))
        by_anchor.setdefault(anchor, []).append((shape, tuple(words)))
    return {anchor: tuple(found) for anchor, found in by_anchor.items()}


def _whole(shape: bytes) -> Sequence[bytes]:
    """The tokens that stand in a text as they stand in this part of it; all where there is none."""
    plain = shape.translate(_BLANKS)
    tokens = plain.split()
    return tokens[plain[:1] != b" " : len(tokens) - (plain[-1:] != b" ")] or tokens


@functools.cache
def _words() -> tuple[_Word, ...]:
    by_word: dict[str, list[Row]] = {}
    for row in load_error_rows().values():
        for word in row.words:
            by_word.setdefault(word, []).append(row)
    return tuple(
        _Word(place, word, word.encode().translate(None, _DIGITS), tuple(found))
        for place, (word, found) in enumerate(by_word.items())
    )
