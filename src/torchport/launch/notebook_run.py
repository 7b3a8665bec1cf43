"""`python -m torchport.launch.notebook_run NB.ipynb ARGS` runs the code cells of a notebook in their order.

Lines that are IPython's are left out, with a note on stderr. Places in tracebacks are those of the cells: `File
"nb.ipynb, cell 3", line 2`. Neither Jupyter nor IPython is needed: `display` and `get_ipython` have stand-ins, and
where IPython is not installed, so has it. The current folder stays what it is; imports are from the notebook's folder.
"""

from __future__ import annotations

import codeop
import importlib.util
import linecache
import os
import sys
import types
from pathlib import Path

from torchport.launch.notebook import describe_left_out, read_code_cells


def run_notebook(name: str, data: bytes) -> None:
    """Run the cells of the notebook `data` as the module `__main__`; `name` stands for it in tracebacks."""
    main = types.ModuleType("__main__")
    main.__dict__.update(display=display, get_ipython=_Shell)
    sys.modules["__main__"] = main
    _stand_in_for_ipython()
    os.environ.setdefault("MPLBACKEND", "Agg")  # a window would wait for someone to close it
    compiled = codeop.Compile()  # keeps what `from __future__` says for the cells behind it, as IPython does
    for cell in read_code_cells(data):
        for note in describe_left_out(cell):
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
    run_notebook(name, Path(name).read_bytes())


if __name__ == "__main__":
    _main()
