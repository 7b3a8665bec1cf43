"""The folders that a script's own text adds to `sys.path`, read and never executed."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

_ADDING = {"sys.path.append": 0, "sys.path.insert": 1, "sys.path.extend": 0, "site.addsitedir": 0}
_SAME = frozenset({"os.path.abspath", "os.path.realpath", "os.path.normpath", "os.path.expanduser", "os.fspath", "str"})
_SAME_METHODS = frozenset({"resolve", "absolute", "as_posix", "expanduser"})
_JOINS = frozenset({"os.path.join", "Path", "pathlib.Path"})


def find_added_folders(tree: ast.Module, script: Path, folder: Path) -> list[Path]:
    """The existing folders that the module `tree` of the file `script` adds to `sys.path`, in the order of its lines;
    relative ones are resolved in `folder`, the current folder of its process.

    Paths are read that consist of strings, `__file__`, `os.getcwd()`, `os.path` and `pathlib`, and names that are
    assigned once; others are left out.
    """
    values = _Values(tree, script, folder)
    found = []
    for node in ast.walk(tree):
        for expression in _added(node):
            text = values.evaluate(expression)
            if text is not None and os.path.isdir(place := folder / text):
                found.append((getattr(node, "lineno", 0), Path(os.path.realpath(place))))
    return list(dict.fromkeys(place for _, place in sorted(found, key=lambda one: one[0])))


def _added(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that a node adds to sys.path."""
    value: ast.expr | None = None
    if isinstance(node, ast.Call):
        position = _ADDING.get(ast.unparse(node.func))
        value = node.args[position] if position is not None and len(node.args) > position else None
    elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "sys.path":
        value = node.value
    if isinstance(value, ast.List | ast.Tuple):
        yield from value.elts
    elif value is not None:
        yield value


class _Values:
    """The texts that expressions of paths have, as far as the file says."""

    def __init__(self, tree: ast.Module, script: Path, folder: Path) -> None:
        self._names: dict[str, ast.expr | None] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                self._names[name] = None if name in self._names else node.value
        self._script, self._folder = str(script), str(folder)

    def evaluate(self, node: ast.expr, depth: int = 0) -> str | None:
        """The path that the expression gives; None where the file does not say."""
        if depth > 20:  # a name that is assigned from itself
            return None
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Name(id="__file__"):
                return self._script
            case ast.Name(id=name):
                value = self._names.get(name)
                return None if value is None else self.evaluate(value, depth + 1)
            case ast.BinOp(left=left, op=ast.Div() | ast.Add() as operator, right=right):
                first, second = self.evaluate(left, depth + 1), self.evaluate(right, depth + 1)
                if first is None or second is None:
                    return None
                return first + second if isinstance(operator, ast.Add) else os.path.join(first, second)
            case ast.Attribute(value=inner, attr="parent"):
                return self._above(inner, 0, depth)
            case ast.Attribute() if ast.unparse(node) in ("os.pardir", "os.curdir"):
                return ".." if node.attr == "pardir" else "."
            case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int() as n)):
                return self._above(inner, n, depth)
            case ast.Call(func=function, args=arguments):
                return self._call(function, list(arguments), depth + 1)
        return None

    def _above(self, node: ast.expr, number: int, depth: int) -> str | None:
        """The folder that is `number` folders above the parent of a path."""
        text = self.evaluate(node, depth + 1)
        above = [] if text is None else list(Path(os.path.abspath(os.path.join(self._folder, text))).parents)
        return str(above[number]) if 0 <= number < len(above) else None

    def _call(self, function: ast.expr, arguments: list[ast.expr], depth: int) -> str | None:
        """The path that a call of os, os.path or pathlib gives."""
        name = ast.unparse(function)
        if name in ("os.getcwd", "Path.cwd", "pathlib.Path.cwd") and not arguments:
            return self._folder
        if isinstance(function, ast.Attribute) and function.attr in _SAME_METHODS and not arguments:
            return self.evaluate(function.value, depth)
        if isinstance(function, ast.Attribute) and function.attr == "joinpath":
            name, arguments = "os.path.join", [function.value, *arguments]
        texts = [self.evaluate(argument, depth) for argument in arguments]
        known = [text for text in texts if text is not None]
        if not known or len(known) < len(texts):
            return None
        if name in _SAME and len(known) == 1:
            return known[0]
        if name in _JOINS:
            return os.path.join(*known)
        return os.path.dirname(known[0]) if name == "os.path.dirname" else None
