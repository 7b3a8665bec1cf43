"""The file behind `python -m NAME`, found without importing anything of the user's."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from torchport.errors import TorchportError


def module_file(name: str, folder: Path, environ: Mapping[str, str]) -> Path:
    """The Python file that `python -m name` runs, started in `folder`: a module, or a package's `__main__`.

    Looked for in `folder`, along PYTHONPATH of `environ`, then where this interpreter finds packages.
    Raises TorchportError where there is none.
    """
    given = [entry or str(folder) for entry in environ.get("PYTHONPATH", "").split(os.pathsep)]
    places = [str(folder), *(str(folder / entry) for entry in given if environ.get("PYTHONPATH"))]
    spec = _find(name, [*places, *sys.path])
    if spec is not None and spec.submodule_search_locations is not None:
        main = _find("__main__", list(spec.submodule_search_locations))
        if main is None:
            raise TorchportError(
                f"{name} is a package without a __main__, which `python -m` cannot run",
                hint="Give the module in it that trains, such as -m " + f"{name}.train",
            )
        spec = main
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise TorchportError(
            f"there is no module {name}",
            hint=f"Looked for in {folder.resolve()} and along PYTHONPATH; names are written with dots, without `.py`.",
        )
    return Path(spec.origin)


def _find(name: str, places: Sequence[str]) -> ModuleSpec | None:
    first, *rest = name.split(".")
    if not first:
        return None
    spec = PathFinder.find_spec(first, list(places))
    if spec is None and first != "__main__":
        try:
            spec = importlib.util.find_spec(first)  # finders that an editable installation brings
        except (ImportError, ValueError):
            spec = None
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # By its last word: a folder without __init__.py looks for the package around it in sys.modules.
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec
