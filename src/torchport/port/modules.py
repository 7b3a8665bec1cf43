"""The files that belong to a script: the modules beside it that it imports, and the data beside those."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def local_modules(script: Path) -> list[Path]:
    """`script` and every Python file below its folder that it imports, directly or through others.

    Only what import statements name is found; a file that cannot be parsed is listed and not looked into.
    """
    root = script.parent
    found: dict[Path, None] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            waiting += [target for name in _imported(path, root) for target in _files_of(name, root)]
    return list(found)


def copy_modules(script: Path, target: Path) -> None:
    """Copy `local_modules` to the folder `target`, each to its place relative to the script."""
    for path in local_modules(script):
        copy = target / path.relative_to(script.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def link_data(source: Path, target: Path, apart_from: Path) -> None:
    """Link what lies in the folder `source` and not in `target` into `target`: data that is found by
    `__file__`.

    Folders that both have are gone through; `apart_from` (the output folder) and hidden names are left out.
    """
    for path in source.iterdir():
        place = target / path.name
        if (
            path.name.startswith(".")
            or path.name == "__pycache__"
            or apart_from.is_relative_to(path.resolve())
        ):
            continue
        if not os.path.lexists(place):
            place.symlink_to(path.resolve(), target_is_directory=path.is_dir())
        elif place.is_dir() and not place.is_symlink() and path.is_dir():
            link_data(path, place, apart_from)


def _imported(path: Path, root: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # converting it says what is wrong with it
    package = path.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" if module else alias.name for alias in node.names)


def _files_of(name: str, root: Path) -> Iterator[Path]:
    """Files that `import name` executes: the packages on the way and the module itself."""
    place = root
    for part in name.split(".") if name else ():
        place = place / part
        for path in (place.with_name(part + ".py"), place / "__init__.py"):
            if path.is_file():
                yield path
