"""Conditions and the code that they choose."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchport.source.module import Module

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)  # the statements after which the next one does not run


def leaves(choice: ast.If) -> bool:
    """Whether the block that a condition opens ends by leaving it, so that what follows is for the opposite."""
    return isinstance(choice.body[-1], _LEAVES)


def is_negated(test: ast.AST) -> bool:
    """Whether a condition is `not x`, `x != y` or `x not in y`: its body is for the opposite."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.NotEq | ast.NotIn)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def find_span(module: Module, nodes: Sequence[ast.AST]) -> tuple[int, int]:
    """The byte range from the first of some nodes to the end of the last."""
    first, last = nodes[0], nodes[-1]
    assert isinstance(first, ast.expr | ast.stmt | ast.pattern)
    assert isinstance(last, ast.expr | ast.stmt | ast.pattern)
    return module.text.span(first)[0], module.text.span(last)[1]
