"""Values that decide between a branch for CUDA and one for the NPU: flags, and functions that answer for them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Sequence

from torchport.source.module import Module
from torchport.source.names import Binds
from torchport.source.siblings import find_paired, names_device

_PREDICATE = 6  # statements at most of a function that answers whether there is a device
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


def list_siblings_of_npu(module: Module) -> Iterator[Sequence[ast.AST]]:
    """The values, functions and classes of the file that have a sibling for the NPU in the same scope; attributes that
    are assigned beside one of the same object."""
    # A function may have its sibling in another module: get_cuda_string() beside npu_specific.get_npu_string().
    used = {node.attr for node in module.iter_nodes(ast.Attribute) if "_" in node.attr and names_device(node.attr)}
    for scope in module.names.scopes.values():
        paired = find_paired(scope.bindings)
        others = find_paired({*scope.bindings, *used}) - paired if used and scope.is_module else frozenset()
        yield from (
            [binding.node]
            for name in others & scope.bindings.keys()
            for binding in scope.bindings[name]
            if isinstance(binding.node, _Definition)
        )
        for name in paired:
            for binding in scope.bindings[name]:
                if binding.how is Binds.VALUE and binding.value is not None:
                    yield [binding.value]
                elif isinstance(binding.node, _Definition | ast.ClassDef):
                    yield [binding.node]
    assigned = [(ast.unparse(one), value) for one, value in _assigned_attributes(module) if names_device(one.attr)]
    paired = find_paired({name for name, _ in assigned})
    yield from ([value] for name, value in assigned if name in paired)
    for name in module.project.paired:
        for class_ in module.names.scopes[module.tree].bindings.get(name, ()):
            if isinstance(class_.node, ast.ClassDef):
                yield [class_.node]


def list_deciding_values(module: Module, tests: Iterable[ast.expr]) -> Iterator[Sequence[ast.AST]]:
    """The values that the truth of `tests` comes from: of names and attributes of this file, and the functions of this
    file that answer. A name that is compared with a text is none: it is a device that somebody chose."""
    wanted: set[str] = set()
    for flag in {flag for test in tests for flag in _flags(test)}:
        if isinstance(flag, ast.Attribute):
            wanted.add(flag.attr)
        elif isinstance(flag, ast.Name):
            yield from _bound(module, flag)
        elif isinstance(flag, ast.Call):
            function = module.names.find_definition(flag.func)
            if isinstance(function, _Definition) and _is_predicate(function):
                yield function.body
            elif isinstance(flag.func, ast.Attribute):
                wanted.add(flag.func.attr)
    if wanted:
        known = _index_answers(module)
        for name in sorted(wanted):
            yield from known.get(name, ())


def find_flag(module: Module, name: str) -> Iterator[Sequence[ast.AST]]:
    """The values and the body of the function that a name at the top level of the file means."""
    for binding in module.names.scopes[module.tree].bindings.get(name, ()):
        if binding.how is Binds.VALUE and binding.value is not None:
            yield [binding.value]
        elif isinstance(binding.node, _Definition) and _is_predicate(binding.node):
            yield binding.node.body


def name_flags(module: Module, tests: Iterable[ast.expr]) -> Iterator[str]:
    """The dotted names that the truth of `tests` comes from and that the file imports."""
    for flag in {flag for test in tests for flag in _flags(test)}:
        name = module.resolve_name(flag.func if isinstance(flag, ast.Call) else flag)
        if name is not None and not name.startswith(("torch.", "torch_npu.", "builtins.")):
            yield name


def list_flags(module: Module, test: ast.expr) -> list[str]:
    """The texts of the names, attributes and functions from which a condition has its truth."""
    return [module.get_source(flag.func if isinstance(flag, ast.Call) else flag) for flag in _flags(test)]


def _flags(test: ast.expr) -> Iterator[ast.expr]:
    """The names, attributes and calls from which a condition has its truth."""
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _flags(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _flags(operand)
        case ast.Compare(left=left, comparators=[ast.Constant(value=int() | float() | None)]):
            yield from _flags(left)
        case ast.NamedExpr(value=value):
            yield from _flags(value)
        case ast.Name() | ast.Attribute() | ast.Call():
            yield test


def _bound(module: Module, name: ast.Name) -> Iterator[Sequence[ast.AST]]:
    for binding in module.names.find_bindings(name):
        if binding.how is Binds.VALUE and binding.value is not None and not isinstance(binding.value, ast.Constant):
            yield [binding.value]


def _assigned_attributes(module: Module) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    for assignment in module.iter_nodes(ast.Assign):
        for target in assignment.targets:
            if isinstance(target, ast.Attribute) and not isinstance(assignment.value, ast.Constant):
                yield target, assignment.value


@functools.lru_cache(2)  # asked for each condition of a file
def _index_answers(module: Module) -> dict[str, list[Sequence[ast.AST]]]:
    """By name, the values of attributes, and the bodies of methods and properties that give an answer."""
    found: dict[str, list[Sequence[ast.AST]]] = {}
    for target, value in _assigned_attributes(module):
        found.setdefault(target.attr, []).append([value])
    for function in module.iter_nodes(ast.FunctionDef):
        if _is_predicate(function):
            found.setdefault(function.name, []).append(function.body)
    return found


def _is_predicate(function: _Definition) -> bool:
    """Whether the function is short and gives an answer: it may say whether there is a device."""
    return len(function.body) <= _PREDICATE and any(isinstance(node, ast.Return) for node in function.body)
