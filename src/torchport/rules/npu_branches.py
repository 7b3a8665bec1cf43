"""Code that a project runs on other devices because it has a branch of its own for the NPU.

`"npu" if is_npu_available() else "cuda"` and `{"cuda": "nccl", "npu": "hccl"}` are right as they are: converting the
CUDA half would only make it say the same twice, or replace what is meant for the NPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from torchport.source.module import Module

_NPU = re.compile(r"(?<![A-Za-z])npu|hccl|ascend(?!ing|ant|ed|s\b)", re.IGNORECASE)
_NPU_BYTES = re.compile(rb"npu|hccl|ascend", re.IGNORECASE)
_CUDA = re.compile(r"cuda|nccl", re.IGNORECASE)


def cuda_branches(module: Module) -> list[tuple[int, int]]:
    """Byte ranges of the code that stands beside a branch or an entry for the NPU and is not that branch."""
    if not _NPU_BYTES.search(module.text.data):
        return []
    return [(module.text.span(nodes[0])[0], module.text.span(nodes[-1])[1]) for nodes in _beside(module) if nodes]


def _beside(module: Module) -> Iterator[list[ast.expr] | list[ast.stmt]]:
    for statement in module.iter_nodes(ast.If):
        above = module.get_parent(statement)
        if not (isinstance(above, ast.If) and above.orelse == [statement]):  # elif: a part of its chain
            yield from _others(module, _chain(statement))
        yield _after(module, statement)
    for choice in module.iter_nodes(ast.IfExp):
        above = module.get_parent(choice)
        if not (isinstance(above, ast.IfExp) and above.orelse is choice):
            yield from _others(module, _chain(choice))
    for operator in module.iter_nodes(ast.BoolOp):
        if isinstance(operator.op, ast.Or) and any(_says_npu(module, value) for value in operator.values):
            yield from ([value] for value in operator.values if _is_cuda_only(module, value))
    for dictionary in module.iter_nodes(ast.Dict):
        if any(_is_npu(key) for key in dictionary.keys):
            for key, value in zip(dictionary.keys, dictionary.values, strict=True):
                if key is not None and _is_cuda_only(module, key):
                    yield [key, value]
    collections: list[ast.List | ast.Tuple | ast.Set] = [
        *module.iter_nodes(ast.List),
        *module.iter_nodes(ast.Tuple),
        *module.iter_nodes(ast.Set),
    ]
    for collection in collections:
        if any(_is_npu(element) for element in collection.elts):
            yield from ([element] for element in collection.elts if _is_cuda_only(module, element))
    for class_ in module.iter_nodes(ast.ClassDef):
        values = [one.value for one in class_.body if isinstance(one, ast.Assign)]
        if any(_is_npu(value) for value in values):
            yield from ([value] for value in values if _is_cuda_only(module, value))


def _after(module: Module, statement: ast.If) -> list[ast.stmt]:
    """What follows `if is_npu_available(): return ...` in its block: it is for the other devices."""
    leaves = isinstance(statement.body[-1], ast.Return) and not statement.orelse
    negated = isinstance(statement.test, ast.UnaryOp) and isinstance(statement.test.op, ast.Not)
    if not leaves or negated or not _says_npu(module, statement.test):
        return []
    above = module.get_parent(statement)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(above, name, None)
        if isinstance(block, list) and statement in block:
            return block[block.index(statement) + 1 :]
    return []


_Part = tuple[ast.expr | None, list[ast.stmt] | list[ast.expr]]


def _chain(node: ast.If | ast.IfExp) -> list[_Part]:
    """The tests of an if-elif-else with what they guard; the last has no test."""
    parts: list[_Part] = []
    one: ast.AST | None = node
    rest: list[ast.stmt] | list[ast.expr] = []
    while isinstance(one, ast.If | ast.IfExp):
        parts.append((one.test, one.body if isinstance(one, ast.If) else [one.body]))
        rest = one.orelse if isinstance(one, ast.If) else [one.orelse]
        one = rest[0] if len(rest) == 1 else None
    return [*parts, (None, rest)]


def _others(module: Module, parts: list[_Part]) -> Iterator[list[ast.expr] | list[ast.stmt]]:
    if not any(test is not None and _says_npu(module, test) for test, _ in parts):
        return
    swapped = False  # `if not is_npu_available():` guards the other devices, and what follows is the NPU's
    for test, body in parts:
        for_npu = swapped
        if test is not None and _says_npu(module, test):
            negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            for_npu, swapped = not negated, negated
        elif test is not None and not swapped:
            yield [test]
        if not for_npu:
            yield body


def _says_npu(module: Module, node: ast.expr) -> bool:
    return _NPU.search(module.get_source(node)) is not None


def _is_cuda_only(module: Module, node: ast.expr) -> bool:
    text = module.get_source(node)
    return _CUDA.search(text) is not None and _NPU.search(text) is None


def _is_npu(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ("npu", "hccl")


def is_in_ranges(ranges: Iterable[tuple[int, int]], start: int) -> bool:
    """Whether a byte offset lies in one of the ranges."""
    return any(first <= start < last for first, last in ranges)
