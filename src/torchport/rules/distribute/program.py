"""The script with the files whose functions make its loaders, looked at as one text.

Which loader is trained on stands in the script, where it is made in another file. So that one analysis sees both, those
files are put in front of the script, and what the script imports from them becomes the names that it means. Nothing
moves within a file: an edit of the whole is one of the file that it lies in.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Style
from torchport.rules.distribute import epoch, loader
from torchport.rules.distribute.script import Script
from torchport.rules.distribute.start import last_import
from torchport.source.module import Module
from torchport.source.names import Binds
from torchport.source.text import SourceError

_LOADER = b"DataLoader"


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """One file of the whole: where it begins there, in bytes and lines, and how many it has."""

    module: Module
    start: int
    size: int
    line: int
    lines: int


class Program:
    """`main` and the files of its project whose functions make loaders for it, `beside`; none where they do not fit.

    `RULES` are those that look at the whole, in place of the script alone.
    """

    RULES = (loader.RULE, epoch.RULE)

    def __init__(self, main: Script) -> None:
        self.main = main
        self.beside: tuple[Module, ...] = ()
        self._parts: list[_Part] = []
        self._whole: Script | None = None
        found = list({module.text.path: module for module in _makers(main)}.values())
        if found and all(_is_plain(module) for module in (*found, main)) and not _clash(main, found):
            self._join(found)

    def check_loaders(self, path: str, style: Style) -> Iterator[Finding]:
        """What the rules on loaders say of the file `path`, which is `main` or one of `beside`."""
        whole = self._whole
        part = next((one for one in self._parts if one.module.text.path == path), None)
        if whole is None or part is None:
            return
        for rule in self.RULES:
            for finding in rule.check(whole, style):
                where = finding.location
                if where is None or not part.line < where.line <= part.line + part.lines:
                    continue
                place = dataclasses.replace(
                    where, path=path, line=where.line - part.line, end_line=where.end_line - part.line
                )
                edits = tuple(
                    Edit(one.start - part.start, one.end - part.start, one.replacement) for one in finding.fix
                )
                yield _with_torch(part.module, dataclasses.replace(finding, location=place, fix=edits))

    def _join(self, beside: list[Module]) -> None:
        text, line = b"", 0
        for module in (*beside, self.main):
            data = _blanked(module, beside) if module is self.main else _without_future(module)
            data += b"" if data.endswith(b"\n") else b"\n"
            lines = len(module.text.lines)
            self._parts.append(_Part(module, len(text), len(data), line, lines))
            text, line = text + data, line + data.count(b"\n")
        try:
            self._whole = Script(self.main.text.path, text, self.main.model, self.main.project)
        except SourceError:
            self._parts = []
            return
        self._whole.borrowed = self._parts[-1].start
        self.beside = tuple(beside)


def _makers(main: Script) -> Iterator[Module]:
    """The files of the project with the functions that the script takes from other files, where they make loaders."""
    outside = main.project.outside
    if outside is None:
        return
    for name, target in _taken(main):
        for module, definition in outside.find_meanings(main, target) if _is_projects(main, target) else ():
            own = isinstance(definition, ast.FunctionDef) and definition.name == name
            if own and _LOADER in module.text.data and module.text.path != main.text.path:
                yield module


def _is_projects(main: Script, target: str) -> bool:
    outside = main.project.outside
    return outside is not None and outside.is_projects(main.text.path, target)


def _taken(main: Script) -> Iterator[tuple[str, str]]:
    """The names that the script uses of other modules, without those that it gives another name."""
    for used in main.iter_nodes(ast.Name):
        for binding in main.names.find_bindings(used):
            if binding.how is Binds.IMPORT and binding.target.rpartition(".")[2] == used.id:
                yield used.id, binding.target
    for node in main.iter_nodes(ast.Attribute):
        if isinstance(node.value, ast.Name) and (name := main.resolve_name(node)):
            yield node.attr, name


def _is_plain(module: Module) -> bool:
    """Whether the bytes of a file can stand within another text."""
    return module.text.encoding == "utf-8" and not module.text.data.startswith(b"\xef\xbb\xbf")


def _clash(main: Script, beside: list[Module]) -> bool:
    """Whether two files mean something else by one name at their top levels."""
    meant: dict[str, set[str]] = {}
    files = {module.text.path for module in beside}
    for module in (*beside, main):
        for name, bindings in module.names.scopes[module.tree].bindings.items():
            targets = {
                binding.target if binding.how is Binds.IMPORT else f"{module.text.path}:{name}" for binding in bindings
            }
            if module is main:
                targets = {target for target in targets if not _comes_from(main, target, files)}
            meant.setdefault(name, set()).update(targets)
    return any(len(targets) > 1 for targets in meant.values())


def _comes_from(main: Script, target: str, files: set[str]) -> bool:
    """Whether what is imported by this name stands in one of the files, or is one of them."""
    outside = main.project.outside
    if outside is None or not _is_projects(main, target):
        return False
    return any(module.text.path in files for module in outside.find_modules(main, target))


def _blanked(main: Script, beside: list[Module]) -> bytes:
    """The script with the names of the other files as its own: `import data` and the `data.` of `data.make()` go."""
    files = {module.text.path for module in beside}
    changes: list[tuple[int, int, bytes]] = []
    statements: list[ast.Import | ast.ImportFrom] = [*main.iter_nodes(ast.Import), *main.iter_nodes(ast.ImportFrom)]
    for statement in statements:
        start, end = main.text.span(statement)
        module = "." * getattr(statement, "level", 0) + (getattr(statement, "module", None) or "")
        future = module == "__future__"
        joint = "" if not module or module.endswith(".") else "."
        targets = [f"{module}{joint}{alias.name}" for alias in statement.names]
        if future or all(_comes_from(main, target, files) for target in targets):
            changes.append((start, end, _filled(b"pass", main.text.data[start:end])))
    for node in main.iter_nodes(ast.Attribute):
        name = main.resolve_name(node) if isinstance(node.value, ast.Name) else None
        if name is not None and _comes_from(main, name, files):
            start, end = main.text.span(node)
            changes.append((start, end, _filled(node.attr.encode(), main.text.data[start:end])))
    data = bytearray(main.text.data)
    for start, end, new in changes:
        data[start:end] = new
    return bytes(data)


def _without_future(module: Module) -> bytes:
    data = bytearray(module.text.data)
    for statement in module.iter_nodes(ast.ImportFrom):
        if statement.module == "__future__":
            start, end = module.text.span(statement)
            data[start:end] = _filled(b"pass", module.text.data[start:end])
    return bytes(data)


def _filled(new: bytes, old: bytes) -> bytes:
    """The word, and blanks and line ends up to the length of what was there."""
    rest = bytes(one if one in b"\r\n\\" else 32 for one in old[len(new) :])
    return new + rest


def _with_torch(module: Module, finding: Finding) -> Finding:
    """The finding with an import of torch, where its edits name torch and the file has no such name."""
    if not any(b"torch." in edit.replacement for edit in finding.fix):
        return finding
    if "torch" in module.names.scopes[module.tree].bindings:
        return finding
    script = Script(module.text.path, module.text.data, "", module.project)
    last = last_import(script)
    edit = script.insert_after(last, "import torch") if last is not None else None
    if edit is None:
        return dataclasses.replace(finding, fix=(), safety=Safety.REPORT, severity=Severity.WARNING)
    return dataclasses.replace(finding, fix=(*finding.fix, edit))
