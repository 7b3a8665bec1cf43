"""The files that belong to a script: the user's modules that it imports, and the data beside those."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torchport.port.search_path import find_added_folders
from torchport.source.kinds import Kind, kind_of
from torchport.source.notebook import Notebook
from torchport.source.project import is_foreign, is_installed_place, is_marked, project_root
from torchport.source.text import SourceError


def find_project_files(script: Path, *, module: bool, folder: Path, follow: bool, path: Sequence[str]) -> list[Path]:
    """`script` and the files of its project that it imports, directly or through others; resolved, `script` first.

    `module` says that it is started as `python -m` in `folder`, the current folder; `path` has the entries of
    PYTHONPATH. A name is looked for where Python would: in the script's folder (with `module` in `folder`), in
    `path`, then in the folders that these files add to `sys.path`, the project's root and its `src`, where an
    editable install would find it; an installed package finds its own modules in the folder that it is in. Files
    outside of the project's root (`find_root`), or installed inside of it, do not belong. With `follow` false the
    script alone does.

    Only what import statements name is found, and `import_module("name")`; nothing is imported or executed. A file
    that cannot be parsed is listed and not looked into.
    """
    script = script.resolve()
    if not follow:
        return [script]
    folder = folder.resolve()
    entries = [folder / entry for entry in path if entry]
    root = find_root(script, folder, [*entries, *([folder] if module else [])])
    first = folder if module else script.parent
    installed = [root.parent] if is_installed_place(root.parent) else []
    places = list(dict.fromkeys(place.resolve() for place in (first, *entries, root, root / "src", *installed)))
    packages = _packages_of(script, *(installed or [first])) if module else []
    return _closure([script, *packages], places, folder, lambda found: _is_of_project(found, root))


def find_root(script: Path, folder: Path, given: Sequence[Path] = ()) -> Path:
    """The folder of the project of a script that is started in `folder`: `project_root`, and if nothing marks it, the
    folder that also holds those from which the script imports by `sys.path`: the ones that it adds, and of `given` (the
    entries of PYTHONPATH, and the current folder for `python -m`) those that it lies in: others may be libraries."""
    root, tree = project_root(script), parse_file(script)
    if is_marked(root):
        return root
    tops = {name.partition(".")[0] for name, level in _imported(tree) if not level} - {""}
    places = [place.resolve() for place in given if root.is_relative_to(place.resolve())]
    for place in (*find_added_folders(tree, script.resolve(), folder.resolve()), *places):
        if any((place / f"{top}.py").is_file() or (place / top).is_dir() for top in tops):
            both = Path(os.path.commonpath((root, place)))
            if both not in (both.parent, Path.home(), Path(tempfile.gettempdir())):
                root = both
    return root


def link_data(source: Path, target: Path, apart_from: Path) -> None:
    """Link what lies in the folder `source` and not in `target` into `target`: data that is found by
    `__file__`.

    Folders that both have are gone through; `apart_from` (the output folder) and hidden names are left out.
    """
    for path in source.iterdir():
        place = target / path.name
        if path.name.startswith(".") or path.name == "__pycache__" or apart_from.is_relative_to(path.resolve()):
            continue
        if not os.path.lexists(place):
            place.symlink_to(path.resolve(), target_is_directory=path.is_dir())
        elif place.is_dir() and not place.is_symlink() and path.is_dir():
            link_data(path, place, apart_from)


def _closure(
    start: Sequence[Path], places: Sequence[Path], folder: Path, belongs: Callable[[Path], bool]
) -> list[Path]:
    """`start` and what it imports from `places`, from folders that are added to `sys.path` on the way, or relatively
    to itself, as far as it `belongs`."""
    found: dict[Path, None] = {}
    waiting, known = list(reversed(start)), list(places)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            tree = parse_file(path)
            known += [place for place in find_added_folders(tree, path, folder) if place not in known]
            imported = (target for name, level in _imported(tree) for target in _targets(path, name, level, known))
            waiting += [target for target in imported if belongs(target)]
    return list(found)


def _is_of_project(path: Path, root: Path) -> bool:
    """Whether the file lies in the project itself, not in an environment inside of it."""
    resolved = path.resolve()
    return resolved.is_relative_to(root) and not is_foreign(resolved, root)


def _packages_of(script: Path, first: Path) -> list[Path]:
    """The `__init__.py` of the packages on the way to a module that `python -m` starts: they run before it."""
    found: list[Path] = []
    for folder in script.parents:
        if folder == first or not folder.is_relative_to(first):
            break
        if (folder / "__init__.py").is_file():
            found.append(folder / "__init__.py")
    return found


def parse_file(path: Path) -> ast.Module:
    """The syntax tree of a script, a module or a notebook's code; an empty one for what cannot be parsed: converting
    it says what is wrong with it."""
    try:
        data = path.read_bytes()
        return ast.parse(Notebook(path.name, data).code if kind_of(path.name) is Kind.NOTEBOOK else data)
    except (OSError, SyntaxError, ValueError, SourceError, RecursionError):
        return ast.Module([], [])


def _imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The modules that a file imports: name and level (0: absolute, 1: of its own package ...)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.level
            yield from ((f"{module}.{alias.name}".lstrip("."), node.level) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function, name = ast.unparse(node.func), node.args[0].value
            if function in ("importlib.import_module", "import_module", "__import__") and isinstance(name, str):
                yield name, 0


def _targets(path: Path, name: str, level: int, places: Sequence[Path]) -> Iterator[Path]:
    """Files that the import in the file `path` executes."""
    if level:
        package = path.parents[min(level, len(path.parents)) - 1]
        init = package / "__init__.py"
        yield from (init,) if init.is_file() else ()
        yield from _files_of(name, package)
        return
    top = name.partition(".")[0]
    if not top:
        return
    for place in places:
        if (place / f"{top}.py").is_file() or (place / top / "__init__.py").is_file():
            yield from _files_of(name, place)
            return
    for place in places:  # a package without __init__.py may have a part in each
        yield from _files_of(name, place)


def _files_of(name: str, root: Path) -> Iterator[Path]:
    """Files that `import name` executes below `root`: the packages on the way and the module itself."""
    place = root
    for part in name.split(".") if name else ():
        place = place / part
        for path in (place / "__init__.py", place.with_name(part + ".py")):
            if path.is_file():
                yield path
                break  # a package hides a module of its name
