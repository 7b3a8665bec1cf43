"""Formats in which a line has its meaning from lines above it: tables with a head, CSV, JSON over several lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.logs.values import find_quoted, join_name, parse_value

_HEAD_WORDS = {"epoch", "step", "iter", "iteration", "global_step", "current_steps", "loss", "train_loss"}
_CELL = re.compile(r"[A-Za-z][\w@./\- ()%:]{0,60}")
# Ultralytics: `      1/100      2.12G      1.234      2.345         22        640: 100%|███| 4/4 [00:01<00:00]`
_ROW = re.compile(
    r"^\s{0,12}(?P<epoch>\d{1,6})/(?P<epochs>\d{1,6})\s{1,12}(?P<cells>[\w.+\- \t]{3,200}?):?\s{1,4}\d{1,3}%"
    r"[^/]{0,200}?(?P<batch>\d{1,9})/(?P<batches>\d{1,9})\b"
)
_ALL = re.compile(r"^\s{1,40}all\s{1,20}(?P<cells>[\d.e+\-naif \t]{3,200})\s{0,9}$", re.IGNORECASE)
_MOST = 400  # keys of an object, columns of a table
Row = dict[str, str]


class Tables:
    """Remembers the head of a table, and the object that is open."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._separator = ""
        self._wide: list[str] = []  # of a table with spaces between its columns
        self._classes: list[str] = []
        self._epoch = ""  # of the last row there
        self._depth = 0
        self._object: Row = {}

    def read(self, text: str) -> Row | None:
        """The cells of a row by the names of the columns. None: the line belongs to no table; {}: to one, without
        numbers of its own."""
        row = self._read_object(text)
        if row is None:
            row = self._read_csv(text)
        return self._read_wide(text) if row is None else row

    def finish(self) -> Row:
        """The pairs of the last object."""
        row, self._object = self._object, {}
        return row

    def _read_object(self, text: str) -> Row | None:
        words = text.strip()
        if words in ("{", "[", "}", "},", "]", "],") or (self._depth and words.endswith(("{", "["))):
            self._depth = max(0, self._depth + (1 if words.endswith(("{", "[")) else -1))
            return self.finish()
        if not self._depth or not words:
            return None
        if parse_value(words.rstrip(",")):
            return {}  # of a list
        if not words.startswith('"'):
            self._depth, self._object = 0, {}
            return None
        if len(self._object) < _MOST:
            self._object.update(find_quoted(words))
        return {}

    def _read_csv(self, text: str) -> Row | None:
        if self._separator and text.count(self._separator) == len(self._columns) - 1:
            cells = [cell.strip() for cell in text.split(self._separator)]
            if all(not cell or parse_value(cell) for cell in cells):
                return {name: cell for name, cell in zip(self._columns, cells, strict=True) if cell}
        for separator in (",", ";", "\t"):
            if not 0 < text.count(separator) < _MOST:
                continue
            cells = [cell.strip() for cell in text.split(separator)]
            if all(_CELL.fullmatch(cell) for cell in cells) and _HEAD_WORDS & {join_name(cell) for cell in cells}:
                self._columns, self._separator = cells, separator
                return {}
        return None

    def _read_wide(self, text: str) -> Row | None:
        if (words := text.split())[:1] in (["Epoch"], ["Class"], ["classes"]) and 3 <= len(words) <= _MOST:
            if all(word[0].isalpha() for word in words):
                self._wide, self._classes = (words, self._classes) if words[0] == "Epoch" else (self._wide, words)
                return {}
            if words[0] != "Epoch" and ("Images" in words or "%" in text):
                named = text.split("%")[0].split(":")[0].split()  # with a progress bar behind it
                self._classes = named
                return {}
        if self._wide and (match := _ROW.match(text)):
            cells = match["cells"].split()
            if len(cells) == len(self._wide) - 1:
                named_cells = dict(zip(self._wide[1:], cells, strict=True))
                step = (int(match["epoch"]) - 1) * int(match["batches"]) + int(match["batch"])
                self._epoch = match["epoch"]
                return {"epoch": match["epoch"], "step": str(step), "total_epochs": match["epochs"], **named_cells}
        if self._classes and (match := _ALL.match(text)):
            cells = match["cells"].split()
            if len(cells) == len(self._classes) - 1:
                return {"epoch": self._epoch, **dict(zip(self._classes[1:], cells, strict=True))}
        return None


def numbers_of(row: Row) -> Iterator[tuple[str, float, float]]:
    """The cells that are numbers: name, value, unit of the last digit."""
    for name, text in row.items():
        if (value := parse_value(text)) is not None and (joined := join_name(name)):
            yield (joined, *value)
