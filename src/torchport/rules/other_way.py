"""Where a script has another way beside what a name asks for: a `try`, `hasattr`, a branch on a version."""

from __future__ import annotations

import ast
import re

from torchport.rules.version_test import decide_test, names_version
from torchport.source.module import Module

_ASKS = ("builtins.hasattr", "builtins.getattr")
_ABOUT_VERSION = re.compile(
    r"version|_major|_minor|\bpy[23]\b|greater_or_equal|less_than|hasattr|_available|has_|torch_\d", re.IGNORECASE
)


def find_asked_words(module: Module) -> set[str]:
    """Words that the file asks for before it uses them: `hasattr(torch, "compile")`."""
    return {
        argument.value
        for call in module.iter_nodes(ast.Call)
        if module.resolve_name(call.func) in _ASKS
        for argument in call.args[1:2]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def has_other_way(module: Module, node: ast.AST) -> bool:
    """Whether a node stands in a `try` with an `except`, in a branch on a version or on
    `hasattr` that is not known to be taken, or in one that is known not to be."""
    below = node
    for above in module.names.iter_ancestors(node):
        if isinstance(above, ast.Try) and above.handlers:
            return True
        if isinstance(above, ast.If | ast.IfExp) and below is not above.test:
            taken = decide_test(module, above.test)
            body = above.body if isinstance(above.body, list) else [above.body]
            if taken is None and (names_version(module, above.test) or _ABOUT_VERSION.search(ast.unparse(above.test))):
                return True
            if taken is not None and taken is not (below in body):
                return True
        below = above
    return False


def runs_at_import(module: Module, node: ast.AST) -> bool:
    """Whether a node is executed where its file is imported: not in functions, not under a test of `__name__`."""
    for above in module.names.iter_ancestors(node):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(above, ast.If) and "__name__" in ast.unparse(above.test):
            return False
    return True
