"""Classes and functions of one file: what an expression is an instance of, and which function a call runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.source.names import Binds, Function, Names


class Classes:
    """Answers for one file, from its names alone."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._owners: dict[ast.ClassDef, ast.ClassDef] = {}
        self._methods = self._unique_methods()

    def function_called(self, node: ast.Call) -> Function | None:
        """The function of this file that a call runs (a class's `__init__` for a class), where that is known."""
        if isinstance(node.func, ast.Name):
            found = self._names.find_bindings(node.func)
            if len(found) == 1 and isinstance(found[0].value, ast.Lambda):
                return found[0].value
            definition = self._names.find_definition(node.func)
            if isinstance(definition, ast.ClassDef):
                return self.find_method(definition, "__init__")
            return definition
        if isinstance(node.func, ast.Attribute):
            owner = self.class_of(node.func.value)
            if owner is not None:
                return self.find_method(owner, node.func.attr)
            if self._names.resolve_name(node.func) is None:
                return self._methods.get(node.func.attr)
        return None

    def option_name(self, node: ast.Call) -> str:
        """The attribute that `parser.add_argument("--device")` makes; empty for another call."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "add_argument":
            return ""
        words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        for keyword in node.keywords:
            if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value) if words else ""
        long_words = [word for word in words if word.startswith("--")] or words
        return long_words[0].lstrip("-").replace("-", "_") if long_words else ""

    def class_of(self, node: ast.expr) -> ast.ClassDef | None:
        """The class of this file that an expression is an instance of (or is), where that is proven."""
        if isinstance(node, ast.Call):
            definition = self._names.find_definition(node.func)
            return definition if isinstance(definition, ast.ClassDef) else None
        if not isinstance(node, ast.Name):
            return None
        found = self._names.find_bindings(node)
        if len(found) != 1:
            return None
        binding = found[0]
        if isinstance(binding.node, ast.ClassDef):
            return binding.node
        if binding.how is Binds.PARAMETER:
            return self._receiver_class(node, binding.node) or self._annotated_class(binding.node)
        if binding.how is Binds.VALUE and isinstance(binding.value, ast.Call):
            return self.class_of(binding.value)
        return None

    def _annotated_class(self, parameter: ast.AST) -> ast.ClassDef | None:
        """The class that the annotation of a parameter names."""
        annotation = parameter.annotation if isinstance(parameter, ast.arg) else None
        definition = self._names.find_definition(annotation) if annotation is not None else None
        return definition if isinstance(definition, ast.ClassDef) else None

    def _receiver_class(self, node: ast.Name, parameter: ast.AST) -> ast.ClassDef | None:
        """The class whose method has `parameter` as its first one: what `self` is."""
        owner = self._names.scope_of(node).find_owner_scope(node.id)
        function = owner.node if owner is not None else None
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        first = [*function.args.posonlyargs, *function.args.args][:1]
        around = self._names.parents.get(function)
        return around if isinstance(around, ast.ClassDef) and first == [parameter] else None

    def iter_class_and_bases(self, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """The class itself and its base classes in this file, nearest first."""
        seen: list[ast.ClassDef] = []
        waiting = [node]
        while waiting:
            current = waiting.pop(0)
            if current in seen:
                continue
            seen.append(current)
            yield current
            for base in current.bases:
                definition = self._names.find_definition(base)
                if isinstance(definition, ast.ClassDef):
                    waiting.append(definition)

    def find_method(self, node: ast.ClassDef, name: str) -> Function | None:
        """The method that an instance of the class answers with, if it is defined in this file."""
        for current in self.iter_class_and_bases(node):
            for statement in current.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                    return statement
        return None

    def find_outermost_base(self, node: ast.ClassDef) -> ast.ClassDef:
        """The outermost base class in this file: attributes of a family of classes are one attribute."""
        if node not in self._owners:
            *_, self._owners[node] = self.iter_class_and_bases(node)
        return self._owners[node]

    def _unique_methods(self) -> dict[str, Function]:
        found: dict[str, list[Function]] = {}
        for node in self._names.nodes:
            in_class = isinstance(self._names.parents.get(node), ast.ClassDef)
            if in_class and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append(node)
        common = {"to", "cuda", "cpu", "forward", "step", "get", "update", "__init__", "__call__"}
        return {name: functions[0] for name, functions in found.items() if len(functions) == 1 and name not in common}
