"""Notebooks as scripts: their code cells, without what is IPython's and not Python's (`%matplotlib inline`, `!pip`)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchport.errors import TorchportError
from torchport.source.notebook import RENEW, Notebook, find_notebook_fault, is_timed
from torchport.source.text import SourceError


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """The Python of one code cell: its number, from 1, its first line in `as_script`, and the lines left out of it."""

    number: int
    code: str
    first: int
    left_out: tuple[tuple[int, str], ...]


def as_script(data: bytes) -> bytes:
    """The code cells of a notebook as one Python script, line for line; what is not Python has become `pass`.

    `locate_cell_line` tells which line of which cell a line of it is. Raises TorchportError for what is not a notebook.
    """
    return "".join(cell.code for cell in read_code_cells(data)).encode("utf-8", "surrogatepass")


def locate_cell_line(data: bytes, line: int) -> str:
    """Where a line of `as_script(data)` is in the notebook: "cell 3, line 2"."""
    before = [cell for cell in read_code_cells(data) if cell.first <= line]
    if not before:
        return f"line {line}"
    return f"cell {before[-1].number}, line {line - before[-1].first + 1}"


def read_code_cells(data: bytes) -> list[Cell]:
    """The code cells, in their order. Raises TorchportError for what is not a notebook."""
    fault = find_notebook_fault(data)
    if fault:
        raise TorchportError(fault, hint=RENEW if fault.endswith("no cells") else "")
    try:
        notebook = Notebook("", data)
    except SourceError as error:
        raise TorchportError(error.message) from error
    found: list[Cell] = []
    texts: dict[int, str] = {}
    starts: dict[int, int] = {}
    for piece in notebook.pieces:
        texts[piece.cell] = texts.get(piece.cell, "") + piece.text
        starts.setdefault(piece.cell, piece.start)
    line = 1
    for number, text in texts.items():
        start = starts[number]
        length = len(text.encode("utf-8", "surrogatepass"))
        code = notebook.code[start : start + length].decode("utf-8", "surrogatepass")
        left_out = tuple(
            (index, before.strip())
            for index, (before, after) in enumerate(zip(text.split("\n"), code.split("\n"), strict=True), 1)
            if before.strip() and before != after and not is_timed(before)
        )
        code += "" if code.endswith("\n") else "\n"
        found.append(Cell(number, code, line, left_out))
        line += code.count("\n")
    return found


def describe_left_out(cell: Cell) -> list[str]:
    """What a person should know of the lines that were left out of a cell."""
    if cell.left_out and not cell.code.strip():
        return [f"cell {cell.number}: left out, it is not Python: {cell.left_out[0][1]}"]
    return [f"cell {cell.number}, line {line}: left out, it is IPython's: {text}" for line, text in cell.left_out]


def check_notebook(name: str, path: Path) -> None:
    """Raise TorchportError where the file `path`, which the user calls `name`, is no notebook with code."""
    try:
        code = any(cell.code.strip() for cell in read_code_cells(path.read_bytes()))
    except TorchportError as error:
        raise TorchportError(f"{name}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise TorchportError(f"cannot read {name}: {error.strerror}") from error
    if not code:
        raise TorchportError(f"{name}: the notebook has no code")
