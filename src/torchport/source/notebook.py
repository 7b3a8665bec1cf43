"""Notebooks: the code cells as one Python text, and the way from a place in it back into the JSON.

The cells of a notebook share their names, so they are read as one module. Lines that are IPython's, not Python's
(`%matplotlib inline`, `!pip install`), and cells that are not Python at all are blanked out in that text, byte by
byte, so that everything else keeps its place. Lines for a shell (`!nvidia-smi`, `%%bash`) are a second text, blanked
out in the same way.
"""

from __future__ import annotations

import ast
import bisect
import dataclasses
import itertools
import json
import re
import warnings

from torchport.findings import Edit
from torchport.source.text import SourceError

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
_SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|!|script[ \t]+(?:bash|sh))\b.*")
_SHELL_LINE = re.compile(r"[ \t]*(?:!|%(?:env|set_env|run)(?=[ \t])|%(?=(?:pip3?|conda|mamba|micromamba|uv)[ \t]))")
# Magic that runs the rest of its line as Python.
_STATEMENT = re.compile(r"%(?:time|timeit|prun|memit)(?:[ \t]+-\w+(?:[ \t]+\d+)?)*[ \t]+(?=[^\s-])")
_MAGIC = re.compile(r"^([ \t]*+)([%!?].*|[^\n'\"#]*\?{1,2}[ \t]*)$", re.MULTILINE)

RENEW = "Notebooks of format 3 and older: `jupyter nbconvert --to notebook` renews them."


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """One JSON string of a cell's source: its character range in the file, with the quotes, and its text's start."""

    raw_start: int
    raw: str
    text: str
    start: int  # byte offset of the text in the module
    cell: int


class Notebook:
    """The code of a notebook; `shell` has what its cells give to a shell, at the same offsets.

    Raises SourceError (TP902, TP901) for what is not JSON text, and for a notebook without a list of cells.
    """

    def __init__(self, path: str, data: bytes) -> None:
        try:
            self._file = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceError("TP902", f"a notebook is UTF-8, and this is not: {error}") from error
        fault = find_notebook_fault(data)
        if fault:
            raise SourceError("TP901", fault)
        # The characters of more than one byte, and how many bytes more than characters there are up to each.
        self._wide = [match.start() for match in _NOT_ASCII.finditer(self._file)]
        more = (len(self._file[at].encode("utf-8", "surrogatepass")) - 1 for at in self._wide)
        self._more = [0, *itertools.accumulate(more)]
        self.pieces: list[Piece] = []
        self.code = b""
        self.shell = b""
        self.skipped: list[int] = []  # numbers of cells that are not Python
        for number, cell in enumerate(_code_cells(self._file), 1):
            self._add(number, cell)
        self._starts = [piece.start for piece in self.pieces]

    def _add(self, number: int, cell: list[tuple[int, str]]) -> None:
        texts = [_decoded(raw) for _, raw in cell]
        position = len(self.code)
        for (raw_start, raw), text in zip(cell, texts, strict=True):
            self.pieces.append(Piece(raw_start, raw, text, position, number))
            position += len(text.encode("utf-8", "surrogatepass"))
        whole = "".join(texts)
        python = _without_magic(whole)
        self.shell += _for_shell(whole).encode("utf-8", "surrogatepass") + b"\n"
        if python is None:
            if not _SHELL_CELL.match(whole):
                self.skipped.append(number)
            python = _blank(whole)
        self.code += python.encode("utf-8", "surrogatepass") + b"\n"

    def to_file_edit(self, edit: Edit) -> Edit | None:
        """An edit of the code as an edit of the file; None where it does not lie in one JSON string."""
        start, replacement = edit.start, edit.replacement.decode("utf-8")
        index = bisect.bisect_right(self._starts, start) - 1
        piece = self.pieces[max(index, 0)]
        if start == edit.end == piece.start and index > 0 and self.pieces[index - 1].cell != piece.cell:
            # A new line between two cells belongs at the end of the first.
            piece = self.pieces[index - 1]
            return self._insert_at_end(piece, replacement)
        if start > piece.start + len(piece.text.encode()):
            return self._insert_at_end(piece, replacement) if start == edit.end else None
        first = self._character(piece, start)
        last = self._character(piece, edit.end)
        if first is None or last is None:
            return None
        return Edit(self._bytes(first), self._bytes(last), json.dumps(replacement, ensure_ascii=False)[1:-1].encode())

    def to_file_offset(self, offset: int) -> int:
        """The byte offset in the file of a byte offset in the code."""
        index = max(bisect.bisect_right(self._starts, offset) - 1, 0)
        if not self.pieces:
            return 0
        found = self._character(self.pieces[index], offset)
        return self._bytes(found if found is not None else self.pieces[index].raw_start)

    def code_ranges(self) -> list[tuple[int, int, bool]]:
        """The character ranges of the file that are code, and whether each begins a comment."""
        return [
            (piece.raw_start, piece.raw_start + len(piece.raw), piece.text.lstrip().startswith("#"))
            for piece in self.pieces
        ]

    def _insert_at_end(self, piece: Piece, text: str) -> Edit:
        end = self._bytes(piece.raw_start + len(piece.raw) - 1)
        line = text.strip("\n")
        text = f"{line}\n" if piece.text.endswith("\n") else f"\n{line}"
        return Edit(end, end, json.dumps(text, ensure_ascii=False)[1:-1].encode())

    def _character(self, piece: Piece, offset: int) -> int | None:
        """The character offset in the file of a byte offset in the code, if that lies in the piece."""
        inside = piece.text.encode("utf-8", "surrogatepass")[: offset - piece.start]
        if offset - piece.start > len(piece.text.encode("utf-8", "surrogatepass")):
            return None
        count = len(inside.decode("utf-8", "surrogatepass"))
        position = piece.raw_start + 1
        for index, found in enumerate(_CHARACTER.finditer(piece.raw, 1, len(piece.raw) - 1)):
            if index == count:
                break
            position = piece.raw_start + found.end()
        return position

    def _bytes(self, character: int) -> int:
        """The byte offset of a character of the file."""
        return character + self._more[bisect.bisect_left(self._wide, character)]


def find_notebook_fault(data: bytes) -> str:
    """Why the bytes are no notebook with cells, as a sentence without its end; empty for one that is.

    Control characters in strings are let through, as Jupyter's own readers do, and so is what nests too deeply to be
    judged.
    """
    try:
        content = json.loads(data, strict=False)
    except RecursionError:
        return ""
    except ValueError as error:
        return f"the notebook is not JSON: {error}"
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        return "the notebook has no cells"
    return ""


def is_timed(line: str) -> bool:
    """Whether a line measures Python, which is then a part of the code: `%time f()`."""
    return _STATEMENT.match(line.lstrip(" \t")) is not None


def _code_cells(text: str) -> list[list[tuple[int, str]]]:
    """For each code cell the (character offset, raw token) of the strings that make up its source."""
    cells: dict[int, list[tuple[int, str]]] = {}
    kinds: dict[int, str] = {}
    path: list[str | int] = []
    key_next: list[bool] = []  # for each open container whether it is an object that expects a key
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "{[":
            path.append("" if word == "{" else 0)
            key_next.append(word == "{")
        elif word in "}]":
            if not path:
                raise SourceError("TP901", "the notebook is not JSON")
            path.pop()
            key_next.pop()
        elif word == "," and path:
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
            else:
                key_next[-1] = True
        elif word[0] == '"' and path:
            if key_next[-1]:
                path[-1] = _decoded(word)
                key_next[-1] = False
            elif path[0] == "cells":
                _note(path, token.start(), word, cells, kinds)
    return [cells[index] for index in sorted(cells) if kinds.get(index) == "code"]


def _note(
    path: list[str | int], start: int, word: str, cells: dict[int, list[tuple[int, str]]], kinds: dict[int, str]
) -> None:
    match path:
        case ["cells", int(index), "cell_type"]:
            kinds[index] = _decoded(word)
        case ["cells", int(index), "source"] | ["cells", int(index), "source", int()]:
            cells.setdefault(index, []).append((start, word))
        case _:
            pass


def _decoded(raw: str) -> str:
    try:
        return str(json.loads(raw, strict=False))
    except ValueError as error:
        raise SourceError("TP901", f"the notebook is not JSON: {error}") from error


def _without_magic(cell: str) -> str | None:
    """The cell with IPython's lines blanked out; None where it is not Python."""
    if re.match(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)", cell):
        return None
    python = _MAGIC.sub(lambda found: found[1] + _pass(found[2]), cell)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(python)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return python


def _for_shell(cell: str) -> str:
    """What the cell gives to a shell, all else blanked out."""
    lines = cell.splitlines(keepends=True)
    if _SHELL_CELL.match(cell):
        head = next(index for index, line in enumerate(lines) if line.strip())
        return "".join(_blank(line) if index <= head else line for index, line in enumerate(lines))
    return "".join(
        f"{' ' * found.end()}{line[found.end() :]}" if (found := _SHELL_LINE.match(line)) else _blank(line)
        for line in lines
    )


def _pass(line: str) -> str:
    """A statement that does nothing, of the same length in bytes, before the code that the line may hold."""
    timed = _STATEMENT.match(line)
    if timed is not None:
        return f"0;{' ' * (timed.end() - 2)}{line[timed.end() :]}"
    length = len(line.encode("utf-8", "surrogatepass"))
    return f"pass{'#' * (length - 4)}" if length >= 4 else ";".join("0" * ((length + 1) // 2)).ljust(length)


def _blank(cell: str) -> str:
    return "".join("\n" if char == "\n" else " " * len(char.encode("utf-8", "surrogatepass")) for char in cell)
