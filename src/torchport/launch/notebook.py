"""Notebooks as scripts: `python -m torchport.launch.notebook NB.ipynb ARGS` runs the code cells in their order.

What is IPython's and not Python's (`%matplotlib inline`, `!pip install`) is left out, with a note on stderr. Places in
tracebacks are those of the cells: `File "nb.ipynb, cell 3", line 2`. Neither Jupyter nor IPython is needed: `display`
and `get_ipython` have stand-ins, and where IPython is not installed, so has it.
"""

from __future__ import annotations

import codeop
import dataclasses
import importlib.util
import json
import linecache
import os
import sys
import types
from pathlib import Path

from torchport.errors import TorchportError
from torchport.source.notebook import Notebook
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

    `place` tells which line of which cell a line of it is. Raises TorchportError for what is not a notebook.
    """
    return "".join(cell.code for cell in cells(data)).encode("utf-8", "surrogatepass")


def place(data: bytes, line: int) -> str:
    """Where a line of `as_script(data)` is in the notebook: "cell 3, line 2"."""
    before = [cell for cell in cells(data) if cell.first <= line]
    if not before:
        return f"line {line}"
    return f"cell {before[-1].number}, line {line - before[-1].first + 1}"


def cells(data: bytes) -> list[Cell]:
    """The code cells, in their order. Raises TorchportError for what is not a notebook."""
    try:
        content = json.loads(data)
    except ValueError as error:
        raise TorchportError(f"the notebook is not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise TorchportError(
            "the notebook has no cells",
            hint="Notebooks of format 3 and older: `jupyter nbconvert --to notebook` renews them.",
        )
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
            if before.strip() and before != after
        )
        code += "" if code.endswith("\n") else "\n"
        found.append(Cell(number, code, line, left_out))
        line += code.count("\n")
    return found


def notes(cell: Cell) -> list[str]:
    """What a person should know of the lines that were left out of a cell."""
    if cell.left_out and not cell.code.strip():
        return [f"cell {cell.number}: left out, it is not Python: {cell.left_out[0][1]}"]
    return [
        f"cell {cell.number}, line {line}: left out, it is IPython's: {text}" for line, text in cell.left_out
    ]


def check(name: str, path: Path) -> None:
    """Raise TorchportError where the file `path`, which the user calls `name`, is no notebook with code."""
    try:
        code = any(cell.code.strip() for cell in cells(path.read_bytes()))
    except TorchportError as error:
        raise TorchportError(f"{name}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise TorchportError(f"cannot read {name}: {error.strerror}") from error
    if not code:
        raise TorchportError(f"{name}: the notebook has no code")


def run(name: str, data: bytes) -> None:
    """Run the cells of the notebook `data` as the module `__main__`; `name` stands for it in tracebacks."""
    main = types.ModuleType("__main__")
    main.__dict__.update(display=display, get_ipython=_Shell)
    sys.modules["__main__"] = main
    _stand_in_for_ipython()
    os.environ.setdefault("MPLBACKEND", "Agg")  # a window would wait for someone to close it
    compiled = codeop.Compile()  # keeps what `from __future__` says for the cells behind it, as IPython does
    for cell in cells(data):
        for note in notes(cell):
            print(f"{name}, {note}", file=sys.stderr)
        file = f"{name}, cell {cell.number}"
        # Without a time of change, so that nobody looks for the file.
        linecache.cache[file] = (len(cell.code), None, cell.code.splitlines(keepends=True), file)
        exec(compiled(cell.code, file, "exec"), main.__dict__)  # noqa: S102  the user's own code


def display(*objects: object, **_: object) -> None:
    """What a notebook's `display` comes to without a page: the objects as text."""
    for shown in objects:
        print(shown)


class _Nothing:
    """Any attribute of it is callable, and does nothing."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *_: object, **__: object) -> object:
        return _Nothing()


class _Shell(_Nothing):
    """IPython's shell, which `get_ipython()` gives."""


def _stand_in_for_ipython() -> None:
    if importlib.util.find_spec("IPython") is not None:
        return
    shown = types.ModuleType("IPython.display")
    whole = types.ModuleType("IPython")
    attributes = {"display": display, "__getattr__": _Nothing().__getattr__}
    shown.__dict__.update(attributes)
    whole.__dict__.update({**attributes, "display": shown, "get_ipython": _Shell, "__path__": []})
    sys.modules.update({"IPython": whole, "IPython.display": shown})


def _main() -> None:
    name = sys.argv[1]
    sys.argv = sys.argv[1:]
    # `-m` has put the current folder there; a notebook imports from its own.
    sys.path[0] = str(Path(name).resolve().parent)
    run(name, Path(name).read_bytes())


if __name__ == "__main__":
    _main()
