"""What a name means that a file takes from elsewhere: another file of its project, or an installed library.

Files are read and parsed when something is asked of them, and never imported or executed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchport.source.module import Module
from torchport.source.names import Binds
from torchport.source.project import INSTALLED, project_root
from torchport.source.text import SourceError

_LARGEST = 2**20  # bytes; a larger file has tables, not classes
_KEPT = 100  # parsed files that are kept for the next question
_DEEPEST = 20  # re-exports on the way from a name to what it means

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Outside:
    """The modules that a project can import, by their names.

    `root` is the folder from which the files of findings are named; `tops` says in which folders below it the first
    word of a module's name is found. Elsewhere it is looked for beside the file that asks, in `root`, in the root of
    the project that this belongs to and in its `src`, and where this interpreter finds packages.
    """

    def __init__(self, root: Path, tops: Mapping[str, Sequence[str]]) -> None:
        self._root = root.resolve()
        self._tops = tops
        whole = project_root(self._root)
        self._places = list(dict.fromkeys((self._root, whole, whole / "src")))
        self._modules: dict[Path, Module | None] = {}
        self._exists: dict[Path, bool] = {}
        self._found: dict[tuple[str, str], tuple[str, tuple[str, ...]] | None] = {}

    def find_meanings(self, importer: Module, name: str) -> Iterator[tuple[Module, Definition | ast.expr]]:
        """What the dotted `name` may mean in the file `importer`: classes, functions and assigned values, each with
        the file that it stands in. Nothing where it is not found, or is no name at the top level of a module."""
        yield from self._follow(importer, name, 0, set())

    def _follow(
        self, importer: Module, name: str, depth: int, seen: set[tuple[str, str]]
    ) -> Iterator[tuple[Module, Definition | ast.expr]]:
        """`seen` are the questions on the way: modules that import everything of each other ask them again."""
        key = (importer.text.path, name)
        found = self.locate_name(importer.text.path, name) if depth <= _DEEPEST and key not in seen else None
        seen.add(key)
        if found is None:
            return
        path, rest = found
        module = self._module(path, importer)
        if module is None or not rest:
            return
        scope = module.names.scopes[module.tree]
        for binding in scope.bindings.get(rest[0], ()):
            if binding.how is Binds.IMPORT:
                yield from self._follow(module, ".".join([binding.target, *rest[1:]]), depth + 1, seen)
            elif isinstance(binding.node, Definition):
                inner = binding.node if len(rest) == 1 else _member(binding.node, rest[1:])
                yield from [(module, inner)] if inner is not None else []
            elif binding.how is Binds.VALUE and binding.value is not None and len(rest) == 1:
                yield module, binding.value
        if rest[0] not in scope.bindings:
            for star in module.names.stars:
                joint = "" if star.endswith(".") else "."
                yield from self._follow(module, f"{star}{joint}{'.'.join(rest)}", depth + 1, seen)

    def find_modules(self, importer: Module, name: str) -> Iterator[Module]:
        """The files in which the dotted `name` has its meaning; the module's own where it is the name of a module."""
        found = self.locate_name(importer.text.path, name)
        if found is not None and not found[1]:
            module = self._module(found[0], importer)
            yield from [module] if module is not None else []
        for module, _ in self.find_meanings(importer, name):
            yield module

    def load_module(self, path: str, importer: Module) -> Module | None:
        """The file of the project that findings name so; None where it cannot be parsed."""
        return self._module(self._root / path, importer)

    def read_bytes(self, path: str) -> bytes:
        """The content of a file of the project that findings name so; nothing if it cannot be read or is too large."""
        try:
            place = self._root / path
            return place.read_bytes() if place.stat().st_size <= _LARGEST else b""
        except OSError:
            return b""

    def find_importers_with(self, module: Module, pattern: re.Pattern[bytes]) -> Iterator[tuple[str, bytes]]:
        """The files of the project that import a file and in which `pattern` is found, with their content."""
        for name in sorted(module.project.importers.get(module.text.path, ())):
            if pattern.search(data := self.read_bytes(name)):
                yield name, data

    def locate_name(self, importer: str, name: str, *, installed: bool = True) -> tuple[Path, list[str]] | None:
        """The file that `name` is found in, seen from the file `importer`, and the words that are left to look up;
        without `installed` in the project only."""
        folder = (self._root / importer).parent
        words = [word for word in name.split(".") if word]
        level = len(name) - len(name.lstrip("."))
        if level:
            place = folder
            for _ in range(level - 1):
                place = place.parent
            found = self._walk(place, words)
            own = place / "__init__.py"
            return found or ((own, words) if self._is_file(own) else None)
        if not words:
            return None
        for place in (folder, *(self._root / top for top in self._tops.get(words[0], ())), *self._places):
            if (found := self._walk(place, words)) is not None:
                return found
        if not installed or words[0] in sys.stdlib_module_names:
            return None
        return self._installed(words)

    def locate_in_project(self, importer: str, name: str) -> tuple[str, tuple[str, ...]] | None:
        """As `locate_name`, for files of the project only, named as in findings."""
        key = (importer.rpartition("/")[0], name)
        if key not in self._found:
            foreign = not name or name.startswith(("torch.", "builtins."))
            found = None if foreign else self.locate_name(importer, name, installed=False)
            own = found is not None and found[0].is_relative_to(self._root)
            self._found[key] = (self._name(found[0]), tuple(found[1])) if found is not None and own else None
        return self._found[key]

    def is_projects(self, importer: str, name: str) -> bool:
        """Whether a module of the dotted `name` is a file of the project."""
        found = self.locate_name(importer, name)
        return found is not None and INSTALLED.isdisjoint(found[0].parts)

    def _installed(self, words: list[str]) -> tuple[Path, list[str]] | None:
        for entry in sys.path:
            if not INSTALLED.isdisjoint(Path(entry).parts):
                found = self._walk(Path(entry), words)
                if found is not None:
                    return found
        return None

    def _walk(self, place: Path, words: list[str]) -> tuple[Path, list[str]] | None:
        """The innermost file below `place` that an import of these words executes, and the words that are left."""
        found: tuple[Path, list[str]] | None = None
        for index, word in enumerate(words, 1):
            place = place / word
            if self._is_file(init := place / "__init__.py"):
                found = init, words[index:]
            elif self._is_file(module := place.with_name(f"{word}.py")):
                return module, words[index:]
            elif not self._is_folder(place):
                break
        return found

    def _is_file(self, path: Path) -> bool:
        if path not in self._exists:
            self._exists[path] = path.is_file()
        return self._exists[path]

    def _is_folder(self, path: Path) -> bool:
        if path not in self._exists:
            self._exists[path] = path.is_dir()
        return self._exists[path]

    def _module(self, path: Path, importer: Module) -> Module | None:
        if path not in self._modules:
            if len(self._modules) >= _KEPT:
                del self._modules[next(iter(self._modules))]
            self._modules[path] = self._parse(path, importer)
        return self._modules[path]

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else str(path)

    def _parse(self, path: Path, importer: Module) -> Module | None:
        name = self._name(path)
        try:
            if path.stat().st_size > _LARGEST:
                return None
            return Module(name, path.read_bytes(), importer.project)
        except (OSError, SourceError, RecursionError, MemoryError):
            return None  # converting it, where it is the project's, says why


def _member(definition: Definition, words: list[str]) -> Definition | None:
    """The method or inner class that `Class.name` means."""
    for word in words:
        members = [one for one in definition.body if isinstance(one, Definition) and one.name == word]
        if not isinstance(definition, ast.ClassDef) or len(members) != 1:
            return None
        definition = members[0]
    return definition
