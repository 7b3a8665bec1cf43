"""The trees of the sources: which file declares what, and what a file sees through its includes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from syntax import Class, Declarations, Function, declarations
from tokens import Macro, Text, expand, read

REPOSITORIES = ("ops-math", "ops-nn", "ops-cv", "ops-transformer", "opbase")
# Copies of other repositories, what is not offered yet, and what no call of a user executes.
LEFT_OUT = {"experimental", "3rd", "third_party", "tests", "test", "examples", "op_kernel", "stub_kernel", "ut", "st"}
# Headers whose macros every check uses, from wherever a file includes them.
MACROS = ("opdev/op_log.h", "aclnn_kernels/common/op_error_check.h")
FIRST_PHASE = re.compile(r"\b(acl\w+?)GetWorkspaceSize\s*\(")


@dataclass
class Unit:
    """What is visible from one file: the functions, variables and classes of it, of its headers and of theirs."""

    path: str
    files: list[Declarations]
    memory: dict[str, list[Function]] = field(default_factory=dict)

    def functions(self, name: str, owner: str = "") -> list[Function]:
        """The functions with that name; the nearest file's come first."""
        if name not in self.memory:
            self.memory[name] = [f for file in self.files for f in file.functions.get(name, ())]
        return [f for f in self.memory[name] if not owner or f.owner == owner]

    def variable(self, name: str) -> list[str] | None:
        """The tokens of the first value of a variable of a file."""
        return next((file.variables[name] for file in self.files if name in file.variables), None)

    def class_named(self, name: str) -> Class | None:
        """The class or struct with that name."""
        return next((file.classes[name] for file in self.files if name in file.classes), None)


def shared(one: str, other: str) -> int:
    """How many folders two paths begin with together."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one.split("/"), other.split("/"), strict=False))))


class Sources:
    """A folder with a tree per repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw: dict[str, Text] = {}
        self.declared: dict[str, Declarations] = {}
        self.seen_macros: dict[str, dict[str, Macro]] = {}
        self.seen_texts: dict[str, str] = {}

    @cached_property
    def paths(self) -> list[str]:
        """Every file that may matter, relative to the folder."""
        found = []
        for repository in REPOSITORIES:
            for place, folders, files in os.walk(self.folder / repository):
                folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("."))
                relative = os.path.relpath(place, self.folder)
                found += [
                    f"{relative}/{name}" for name in sorted(files) if name.endswith((".h", ".cpp", ".md", ".txt"))
                ]
        return found

    @cached_property
    def known(self) -> set[str]:
        return set(self.paths)

    @cached_property
    def headers(self) -> dict[str, list[str]]:
        """Headers by the last part of their path."""
        found: dict[str, list[str]] = {}
        for path in self.paths:
            if path.endswith(".h"):
                found.setdefault(path.rsplit("/", 1)[-1], []).append(path)
        return found

    def text(self, path: str) -> str:
        if path not in self.seen_texts:
            self.seen_texts[path] = (self.folder / path).read_text(encoding="utf-8", errors="replace")
        return self.seen_texts[path]

    def tokens(self, path: str) -> Text:
        if path not in self.raw:
            self.raw[path] = read(self.text(path))
        return self.raw[path]

    def header(self, named: str, of: str) -> str | None:
        """The file that an include names: beside the including one, or the nearest that ends so."""
        beside = os.path.normpath(os.path.join(os.path.dirname(of), named))
        if beside in self.known:
            return beside
        ending = "/" + re.sub(r"^(\.\./)+", "", named)
        repository = of.split("/")[0]
        found = [p for p in self.headers.get(named.rsplit("/", 1)[-1], ()) if ("/" + p).endswith(ending)]
        found.sort(key=lambda p: (p.split("/")[0] != repository, -shared(p, of), p))
        return found[0] if found else None

    def includes(self, path: str) -> list[str]:
        """What a file includes of the repositories; the interface below it (opdev) has meanings of its own here."""
        found = []
        for named in self.tokens(path).includes:
            if not named.startswith(("opdev/", "acl/", "aclnn/", "graph/", "exe_graph/", "register/", "external/")):
                header = self.header(named, path)
                if header and "namespace l0op" not in self.text(header):
                    found.append(header)
        return found

    def reachable(self, path: str) -> list[str]:
        """The file, the headers that it sees, and the sources beside them; not those of other functions of a user."""
        found = [path]
        for file in found:
            for header in self.includes(file):
                if header not in found:
                    found.append(header)
            if file.endswith(".h"):
                source = file[:-2] + ".cpp"
                if source in self.known and source not in found and "namespace l0op" not in self.text(source):
                    found.append(source)
        return found

    def macros(self, path: str) -> dict[str, Macro]:
        if path not in self.seen_macros:
            found: dict[str, Macro] = {}
            for named in MACROS:
                header = self.header(named, path)
                found |= self.tokens(header).macros if header else {}
            for file in reversed(self.reachable(path)):
                found |= self.tokens(file).macros
            self.seen_macros[path] = found
        return self.seen_macros[path]

    def declarations(self, path: str) -> Declarations:
        if path not in self.declared:
            self.declared[path] = declarations(expand(self.tokens(path).tokens, self.macros(path)))
        return self.declared[path]

    def unit(self, path: str) -> Unit:
        """What is visible from a file."""
        return Unit(path, [self.declarations(file) for file in self.reachable(path)])

    def first_phases(self) -> Iterator[tuple[str, list[str]]]:
        """The files that define first phases, and the operators of each."""
        for path in self.paths:
            if path.endswith(".cpp") and "/op_" in path and FIRST_PHASE.search(self.text(path)):
                names = [
                    name.removesuffix("GetWorkspaceSize")
                    for name in self.declarations(path).functions
                    if name.endswith("GetWorkspaceSize") and name.startswith("acl")
                ]
                if names:
                    yield path, names
