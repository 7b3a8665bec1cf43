"""Find the lines of a log that a row of `knowledge/errors` speaks of.

Rows are many and lines more, so most lines are left aside by their shape: the line without its digits. Training prints
a few shapes over and over. In each shape the words are looked for by one token each, so that their number costs
nothing, and only where a word is, a pattern is tried.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence

from torchport.diagnose.marks import find_end_of_marks
from torchport.diagnose.quoting import is_source, remove_quoted_text
from torchport.knowledge.errors import Row, load_error_rows

KEPT = 40  # lines of one row in one file; of more, only the number
TEXT = 400  # characters of a line that are kept
EXAMINED = 300  # lines of one shape in one block; what comes after them in it is the same over and over
_DIGITS = b"0123456789"
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
# Words of all prose and all stacks: a token to look for is rather another one.
_EVERYDAY = frozenset(b"so of is not for that the be do does have this device memory operator tensor error NPU".split())
_CODES = re.compile(r"(?<![A-Za-z0-9])[EW][A-Z0-9]\d{4}(?!\d)|(?<!\d)[1-5]\d{5}(?!\d)")
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
    code: str  # the number or report code in it; "" for none
    rows: tuple[Row, ...]


class _Words:
    """Words to look for in lines of one shape. Words of codes differ in the code alone, and are found by it."""

    def __init__(self, words: Sequence[_Word]) -> None:
        self._plain = [word for word in words if not word.code]
        self._coded: dict[str, list[_Word]] = {}
        for word in words:
            if word.code:
                self._coded.setdefault(word.code, []).append(word)

    def find_in(self, line: str) -> list[_Word]:
        """The words that stand in the line, in order of their rows."""
        found = [word for word in self._plain if word.text in line]
        if self._coded:
            codes = _CODES.findall(line)
            found += [word for code in dict.fromkeys(codes) for word in self._coded.get(code, ()) if word.text in line]
        return sorted(found, key=lambda word: word.place)


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

    def _of_line(self, line: bytes, number: int, words: _Words) -> Iterator[Hit]:
        text = line.decode("utf-8", "replace").rstrip("\r")
        said = remove_quoted_text(text)
        raw = said.encode("utf-8", "replace")
        bare = raw[find_end_of_marks(raw) :].decode("utf-8", "replace")
        seen: set[str] = set()
        for word in words.find_in(said):
            if word.text == word.code and not _is_reported(word.code, said):
                continue
            for row in word.rows:
                count = self.counts.get(row.name, 0)
                if row.name in seen:
                    continue
                if row.matches(said) or row.matches(bare):  # a pattern may ask for the beginning of a line
                    seen.add(row.name)
                    self.counts[row.name] = count + 1
                    if count < KEPT:
                        yield Hit(row, number, text[:TEXT])


def _is_reported(code: str, line: str) -> bool:
    """Whether the line reports the code, as `EI0006: ` and `Error(EI0006)` do, and does not only speak of it."""
    return re.search(rf"[(\[]{code}[)\]]|\b{code}(?::|,|\uff1a| - )", line) is not None


def _wanted(shapes: set[bytes]) -> Mapping[bytes, _Words]:
    """The shapes in which words stand, with these words."""
    text = b"\n".join(shapes)
    anchors, unanchored = _by_anchor()
    find = frozenset(anchors).intersection
    searched = [pair for pair in unanchored if pair[0] in text]
    found: dict[bytes, tuple[_Word, ...]] = {}
    for shape, tokens in zip(text.split(b"\n"), text.translate(_BLANKS).split(b"\n"), strict=True):
        for anchor in find(tokens.split()):
            for here, words in anchors[anchor]:
                if here in shape:
                    found[shape] = found.get(shape, ()) + words
        for here, words in searched:
            if here in shape:
                found[shape] = found.get(shape, ()) + words
    return {shape: _group(words) for shape, words in found.items()}


@functools.lru_cache(maxsize=4096)
def _group(words: tuple[_Word, ...]) -> _Words:
    return _Words(words)


_ByShape = tuple[tuple[bytes, tuple[_Word, ...]], ...]


@functools.cache
def _by_anchor() -> tuple[Mapping[bytes, _ByShape], _ByShape]:
    """All words by the token that they are looked for by and by their shape, which words of many codes share; and words
    without a token, in Chinese, which are few.

    What is around a word may go on with a token at its edge; the others stand in a text as they are here. Of these the
    one is taken that fewest other words have, and of such the longest, as long ones are rare.
    """
    by_shape: dict[bytes, list[_Word]] = {}
    for word in _words():
        by_shape.setdefault(word.shape, []).append(word)
    whole = {shape: _whole(shape) for shape in by_shape}
    usual = collections.Counter(token for tokens in whole.values() for token in set(tokens))
    by_anchor: dict[bytes, list[tuple[bytes, tuple[_Word, ...]]]] = {}
    unanchored = []
    for shape, words in by_shape.items():
        if not whole[shape]:
            unanchored.append((shape, tuple(words)))
            continue
        anchor = min(whole[shape], key=lambda token: (token in _EVERYDAY, usual[token], -len(token)))
        by_anchor.setdefault(anchor, []).append((shape, tuple(words)))
    return {anchor: tuple(found) for anchor, found in by_anchor.items()}, tuple(unanchored)


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
        _Word(place, word, word.encode().translate(None, _DIGITS), "".join(_CODES.findall(word)[:1]), tuple(found))
        for place, (word, found) in enumerate(by_word.items())
    )
