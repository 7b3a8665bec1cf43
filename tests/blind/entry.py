"""Whether a converted project imports torch_npu before it needs it: not every torch loads the NPU's backend by itself.

A project is looked at from each file that no other of it imports, in the order in which Python would run the code of
its modules. What is inside functions runs later, when all modules have been imported.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping

_NAMES = {"npu", "is_npu"}


@dataclasses.dataclass(slots=True)
class _Run:
    """One start of the program."""

    modules: Mapping[str, ast.Module]
    seen: set[str] = dataclasses.field(default_factory=set)
    ready: bool = False  # torch_npu is imported
    early: list[str] = dataclasses.field(default_factory=list)  # files that used the NPU before that


def too_late(sources: Mapping[str, str], changed: set[str]) -> list[str]:
    """The files (by path) whose code uses the NPU before torch_npu is imported, or of a program that never imports it.

    `sources` are the Python files of a converted project, `changed` those that the conversion has edited.
    """
    modules = {}
    for path, text in sources.items():
        try:
            modules[path] = ast.parse(text)
        except SyntaxError:
            continue  # it was none before, which the conversion reports
    imported = {
        other for path, tree in modules.items() for node in _imports(tree) for other in _files(node, path, modules)
    }
    late: list[str] = []
    for path in modules:
        if path in imported or path.endswith("__init__.py"):
            continue
        run = _Run(modules)
        _walk(path, run)
        late += [early for early in run.early if early in changed]  # else the project has its own way
        if not run.ready and not run.early and (needing := sorted(run.seen & changed)):
            late.append(needing[0])
    return sorted(set(late))


def _walk(path: str, run: _Run) -> None:
    if path in run.seen:
        return
    run.seen.add(path)
    for node in _executed(run.modules[path]):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            run.ready = run.ready or any(name.partition(".")[0] == "torch_npu" for name in names)
            for other in _files(node, path, run.modules):
                _walk(other, run)
        elif isinstance(node, ast.Attribute) and node.attr in _NAMES and not run.ready:
            run.early.append(path)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of the code that runs when a module is imported, in order."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for outside in (child.args, *getattr(child, "decorator_list", ())):
                yield from _executed(outside)
            continue
        yield child
        yield from _executed(child)


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _files(node: ast.Import | ast.ImportFrom, path: str, modules: Mapping[str, ast.Module]) -> Iterator[str]:
    """The files of the project that an import statement in the file `path` runs."""
    if isinstance(node, ast.Import):
        names = [one.name for one in node.names]
    else:
        above = path.split("/")[: -node.level] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        names = [base, *(f"{base}.{one.name}".lstrip(".") for one in node.names)]
    here = path.rpartition("/")[0]  # of a script, which Python looks in first
    for name in names:
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            stem = "/".join(parts[:length])
            places = [here, "src"] if here else ["src"]
            beside = [f"{place}/{stem}{end}" for place in places for end in (".py", "/__init__.py")]
            yield from (file for file in (f"{stem}.py", f"{stem}/__init__.py", *beside) if file in modules)
