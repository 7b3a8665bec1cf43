"""Who imports whom in a project, found in bytes without parsing: which files come to use CUDA through others."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from torchport.source.definitions import IMPORT

# What conversion turns into something that only torch_npu brings.
_USES = re.compile(
    rb"""\btorch\.cuda\b|from[ \t]+torch[ \t]+import[^\r\n]*\bcuda\b|\.(?:is_)?cuda\b|['"](?:cuda\b|nccl['"])"""
)
_COMMENT = re.compile(rb"#[^\r\n]*")


class Imports:
    """Collects the Python files of a project, each with its name from the project's folder."""

    def __init__(self) -> None:
        self._of: dict[str, list[str]] = {}
        self._using: set[str] = set()

    def add(self, name: str, data: bytes) -> None:
        """Look at one file."""
        self._of[name] = list(dict.fromkeys(_modules(data)))
        if _USES.search(data) and _USES.search(_COMMENT.sub(b"", data)):
            self._using.add(name)

    def importers(self) -> dict[str, set[str]]:
        """For each file the files of the project that import it."""
        found: dict[str, set[str]] = {}
        for name, targets in self._edges.items():
            for target in targets:
                found.setdefault(target, set()).add(name)
        return found

    @functools.cached_property
    def _edges(self) -> dict[str, set[str]]:
        return self.edges()

    def edges(self) -> dict[str, set[str]]:
        """For each file the files of the project that it imports."""
        index: dict[str, list[PurePosixPath]] = {}
        for name in self._of:
            module = _module(name)
            if module.name:
                index.setdefault(module.name, []).append(module)
        files = {_module(name): name for name in self._of}
        return {
            name: {files[found] for module in modules for found in _resolve(name, module, index, files)}
            - {name}
            for name, modules in self._of.items()
        }

    def leading(self) -> frozenset[str]:
        """The files that import, directly or through others, one that uses CUDA."""
        importers = self.importers()
        found: set[str] = set()
        waiting = [*self._using]
        while waiting:
            for importer in importers.get(waiting.pop(), set()) - found:
                found.add(importer)
                waiting.append(importer)
        return frozenset(found)

    def imported(self) -> frozenset[str]:
        """The files that another file imports."""
        return frozenset(target for targets in self._edges.values() for target in targets)

    def tops(self) -> dict[str, tuple[str, ...]]:
        """For each word that may begin the name of a module the folders in which such a module or package lies."""
        files = {_module(name) for name in self._of}
        found: dict[str, list[str]] = {}
        for module in files:
            if module.name and module.parent not in files:
                found.setdefault(module.name, []).append(str(module.parent))
        return {word: tuple(sorted(folders)) for word, folders in found.items()}

    def parts(self) -> frozenset[str]:
        """The names of all modules and of the folders they lie in: what `import` may begin with."""
        return frozenset(part for name in self._of for part in _module(name).parts)


def _modules(data: bytes) -> Iterator[str]:
    """The dotted names that import statements may mean, relative ones with their dots."""
    for match in IMPORT.finditer(data):
        if match[1]:
            module = match[1].decode()
            yield module
            listed = re.sub(rb"#[^\r\n]*|\bas[ \t]+\w+", b"", match[2])
            joint = "" if module.endswith(".") else "."
            yield from (f"{module}{joint}{name.decode()}" for name in re.findall(rb"\w+", listed))
        else:
            for part in match[3].split(b","):
                found = re.match(rb"\s*([\w.]+)", part)
                if found:
                    yield found[1].decode()


def _module(name: str) -> PurePosixPath:
    path = PurePosixPath(name).with_suffix("")
    return path.parent if path.name == "__init__" else path


def _resolve(
    importer: str, module: str, index: dict[str, list[PurePosixPath]], files: dict[PurePosixPath, str]
) -> Iterator[PurePosixPath]:
    """The modules of the project that the import executes: the one that is named, and the packages above it."""
    here = PurePosixPath(importer).parent
    dots = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    if dots:
        for _ in range(dots - 1):
            here = here.parent
        yield from _on_the_way(here, parts, files)
        return
    if not parts:
        return
    tops = index.get(parts[0], [])
    packages = [found for found in tops if found.parent not in files]  # not inside of another package
    beside = [found for found in tops if found.parent == here]
    folders = {found.parent for found in beside or packages}
    if not folders:  # a folder without __init__.py
        folders = {PurePosixPath()}
    for folder in folders:
        yield from _on_the_way(folder, parts, files)


def _on_the_way(
    folder: PurePosixPath, parts: list[str], files: dict[PurePosixPath, str]
) -> Iterator[PurePosixPath]:
    place = folder
    if not parts and place in files:
        yield place
    for part in parts:
        place /= part
        if place in files:
            yield place
