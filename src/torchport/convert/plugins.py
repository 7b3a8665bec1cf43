"""The CUDA extensions of a project: their names, their sources, and where they are built."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

_CUDA = (".cu", ".cuh")
# CUDAExtension, load, load_inline, and what projects name that calls them: get_plugin, make_cuda_ext, compile_module.
_BUILDS = re.compile(r"extension|ext$|^load|plugin|compile|build|module|kernel|jit", re.IGNORECASE)
_INCLUDE = re.compile(rb'#\s*include\s*[<"]([^>"]+)[>"]')
_SPELLS = re.compile(rb"\.cuh?\b|cuda_sources|CUDAExtension")
_SETUP = re.compile(rb"\bsetup\s*\(|ext_modules")


@dataclasses.dataclass(frozen=True, slots=True)
class Plugin:
    """One extension. `path` and `line` are where it is built, `sources` the names of its files as they are written;
    `installed` says that setup.py builds it, not the program at run time."""

    name: str
    path: str
    line: int
    sources: tuple[str, ...]
    installed: bool
    module: str = ""  # what it is imported as, where `name` is that of a group


def find_plugins(files: Mapping[str, bytes]) -> list[Plugin]:
    """The extensions that the Python files build from CUDA sources whose names they spell."""
    found = []
    for path, data in files.items():
        if _SPELLS.search(data):
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                found += list(_built(path, ast.parse(data), installed=_SETUP.search(data) is not None))
    return list({(one.path, one.name): one for one in found}.values())


def _built(path: str, tree: ast.Module, *, installed: bool) -> Iterator[Plugin]:
    lists = {
        target.id: sources
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and (sources := _sources(node.value))
    }
    chosen = {  # extension = CUDAExtension, under a condition as a rule, which is where it is decided
        target.id: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith("CUDAExtension")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        given = [*call.args, *(word.value for word in call.keywords)]
        sources = [source for one in given for source in _sources(one)]
        names = [node.id for one in given for node in ast.walk(one) if isinstance(node, ast.Name)]
        sources += [source for name in dict.fromkeys(names) for source in lists.get(name, ())]
        inline = any(word.arg == "cuda_sources" for word in call.keywords)
        name = "" if isinstance(call.func, ast.Name) and call.func.id == "setup" else _name(call)
        function = ast.unparse(call.func).rpartition(".")[2]
        if not (_BUILDS.search(function) or function in chosen or any(word.arg == "sources" for word in call.keywords)):
            continue  # name.endswith(".cu")
        unnamed = (function == "CUDAExtension" and not sources) or function in chosen
        if name and (unnamed or inline or any(source.endswith(_CUDA) for source in sources)):
            at_install = (
                function.endswith("Extension")
                or function in chosen
                or (installed and function not in ("load", "load_inline"))
            )
            yield Plugin(name, path, chosen.get(function, call.lineno), tuple(sources), at_install)


def _name(call: ast.Call) -> str:
    """The last part of the module's name that a call gives."""
    named = [word.value for word in call.keywords if word.arg in ("name", "module_name")]
    for one in [*named, *call.args[:1]]:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            return one.value.rpartition(".")[2]
    return ""


def _sources(value: ast.expr) -> list[str]:
    """File names in a list, also where each is joined to a folder; the names in a call that builds another are not."""
    if isinstance(value, ast.Call) and (_name(value) and any(word.arg == "sources" for word in value.keywords)):
        return []
    texts = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = (text for text in texts if re.search(r"\w\.(?:cu|cuh|cpp|cc|cxx)$", text) and "\n" not in text)
    return [text for text in named if not set("*{%") & set(text)]  # a pattern names none


def find_owners(plugins: Iterable[Plugin], native: Mapping[str, bytes]) -> dict[str, Plugin]:
    """Which plugin each CUDA file belongs to: the one that names it, or names a file that includes it, or has its other
    files in the same folder."""
    every = list(plugins)
    owners: dict[str, Plugin] = {}
    for path in native:
        best = max(((_match(plugin, path), plugin) for plugin in every), key=lambda one: one[0], default=None)
        if best is not None and best[0][0]:
            owners[path] = best[1]
    for _ in range(3):
        for path, data in native.items():
            if path in owners:
                for included in _INCLUDE.findall(data):
                    name = PurePosixPath(included.decode("utf-8", "replace")).name
                    near = [one for one in native if PurePosixPath(one).name == name and one not in owners]
                    owners |= dict.fromkeys(near, owners[path])
    for path in native:
        folder = PurePosixPath(path).parent
        beside = {owner.name: owner for one, owner in owners.items() if PurePosixPath(one).parent == folder}
        if path not in owners and len(beside) == 1:
            owners[path] = next(iter(beside.values()))
    named = [plugin for plugin in every if any(source.endswith(_CUDA) for source in plugin.sources)]
    unnamed = [plugin for plugin in every if plugin not in named]  # they collect their files by a pattern
    for path in native:
        above = [plugin for plugin in unnamed if PurePosixPath(path).is_relative_to(PurePosixPath(plugin.path).parent)]
        if path not in owners and len(above) == 1:
            owners[path] = above[0]
    return owners


def _match(plugin: Plugin, path: str) -> tuple[int, int, int]:
    """How well a plugin's sources name a file: the parts of its path that agree from its end, then how near it is
    built."""
    parts = PurePosixPath(path).parts
    best = 0
    for source in plugin.sources:
        named = [part for part in PurePosixPath(source).parts if part not in (".", "..")]
        agree = 0
        while agree < min(len(named), len(parts)) and named[-1 - agree] == parts[-1 - agree]:
            agree += 1
        best = max(best, agree)
    built = PurePosixPath(plugin.path).parent.parts
    shared = 0
    while shared < min(len(built), len(parts)) and built[shared] == parts[shared]:
        shared += 1
    words = re.split(r"[^a-z0-9]+", plugin.name.lower())
    return best, shared, sum(word in path.lower() for word in words if len(word) > 3)
