"""Who imports whom in a project, found in bytes without parsing: which files come to use CUDA through others."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping, Set

from torchport.source.definitions import IMPORT
from torchport.source.siblings import NPU_NAME, names_npu

# What conversion turns into something that only torch_npu brings.
_USES = re.compile(
    rb"""\btorch\.cuda\b|from[ \t]+torch[ \t]+import[^\r\n]*\bcuda\b|\.(?:is_)?cuda\b|['"](?:cuda\b|nccl['"])"""
)
_KNOWS_NPU = re.compile(NPU_NAME.encode())
_COMMENT = re.compile(rb"#[^\r\n]*")


class Imports:
    """Collects the Python files of a project, each with its name from the project's folder."""

    def __init__(self) -> None:
        self._of: dict[str, list[str]] = {}
        self._using: set[str] = set()
        self.naming_npu: set[str] = set()  # files that name the NPU

    def add_file(self, name: str, data: bytes) -> None:
        """Look at one file."""
        self._of[name] = list(dict.fromkeys(find_imported_names(data)))
        if names_npu(data):
            self.naming_npu.add(name)
            if _KNOWS_NPU.search(data):
                return  # it has a path of its own for the NPU, or brings torch_npu itself
        if (b"cuda" in data or b"nccl" in data) and _USES.search(data) and _USES.search(_COMMENT.sub(b"", data)):
            self._using.add(name)

    def find_importers(self) -> dict[str, set[str]]:
        """For each file the files of the project that import it."""
        found: dict[str, set[str]] = {}
        for name, targets in self.find_imports().items():
            for target in targets:
                found.setdefault(target, set()).add(name)
        return found

    @functools.cached_property
    def _resolved(self) -> tuple[dict[str, set[str]], frozenset[str]]:
        """For each file the files of the project that it imports; the files that import a package from outside."""
        index: dict[str, list[str]] = {}
        files = {_module(name): name for name in self._of}
        for module in map(_module, self._of):
            if last := _last(module):
                index.setdefault(last, []).append(module)
        found: dict[str, set[str]] = {}
        foreign = set()
        for name, modules in self._of.items():
            found[name] = set()
            for module in modules:
                targets = list(_resolve(name, module, index, files))
                found[name].update(files[target] for target in targets)
                if (
                    not targets
                    and not module.startswith(".")
                    and module.partition(".")[0] not in sys.stdlib_module_names
                ):
                    foreign.add(name)
            found[name].discard(name)
        return found, frozenset(foreign)

    def find_imports(self) -> dict[str, set[str]]:
        """For each file the files of the project that it imports."""
        return self._resolved[0]

    def find_cuda_importers(self, paired: Set[str] = frozenset()) -> frozenset[str]:
        """The files that import, directly or through others, one that uses CUDA; `paired` are files that have one for
        the NPU beside them."""
        # A file that imports the standard library and such files alone has no torch: `Backend.cuda` is its own word.
        foreign = self._resolved[1]
        return self._find_all_importers(self._using - paired) & (foreign | self._find_all_importers(foreign))

    def _find_all_importers(self, files: Set[str]) -> frozenset[str]:
        """The files that import one of `files`, directly or through others."""
        importers = self.find_importers()
        found: set[str] = set()
        waiting = [*files]
        while waiting:
            for importer in importers.get(waiting.pop(), set()) - found:
                found.add(importer)
                waiting.append(importer)
        return frozenset(found)

    def list_imported_files(self) -> frozenset[str]:
        """The files that another file imports."""
        return frozenset(target for targets in self.find_imports().values() for target in targets)

    def map_top_folders(self) -> dict[str, tuple[str, ...]]:
        """For each word that may begin the name of a module the folders in which such a module or package lies."""
        files = {_module(name) for name in self._of}
        found: dict[str, list[str]] = {}
        for module in files:
            if (last := _last(module)) and _folder(module) not in files:
                found.setdefault(last, []).append(_folder(module))
        return {word: tuple(sorted(folders)) for word, folders in found.items()}

    def collect_name_parts(self) -> frozenset[str]:
        """The names of all modules and of the folders they lie in: what `import` may begin with."""
        return frozenset(part for name in self._of for part in _module(name).split("/") if part)


def find_imported_names(data: bytes) -> Iterator[str]:
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


# Modules are named by their paths without suffix, packages by their folders, that of the project by "": strings, since
# PurePosixPath takes a tenth of the time of the whole conversion here.
def _module(name: str) -> str:
    folder, file = _folder(name), _last(name)
    stem = file.rpartition(".")[0] or file
    return folder if stem == "__init__" else _below(folder, stem)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _resolve(importer: str, module: str, index: Mapping[str, list[str]], files: Mapping[str, str]) -> Iterator[str]:
    """The modules of the project that the import executes: the one that is named, and the packages above it."""
    here = _folder(importer)
    dots = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    if dots:
        for _ in range(dots - 1):
            here = _folder(here)
        yield from _on_the_way(here, parts, files)
        return
    if not parts:
        return
    tops = index.get(parts[0], [])
    packages = [found for found in tops if _folder(found) not in files]  # not inside of another package
    beside = [found for found in tops if _folder(found) == here]
    folders = {_folder(found) for found in beside or packages}
    if not folders:  # a folder without __init__.py
        folders = {"", "src"}
    for folder in folders:
        yield from _on_the_way(folder, parts, files)


def _on_the_way(folder: str, parts: list[str], files: Mapping[str, str]) -> Iterator[str]:
    place = folder
    if not parts and place in files:
        yield place
    for part in parts:
        place = _below(place, part)
        if place in files:
            yield place
