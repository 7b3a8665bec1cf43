"""What a call is given by name."""

from __future__ import annotations

import ast


def find_keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument; None where it is not written out."""
    return next((word.value for word in call.keywords if word.arg == name), None)


def keyword_is(call: ast.Call, name: str, value: bool) -> bool:
    """Whether a keyword argument is written as True or False, as `value` says."""
    given = find_keyword(call, name)
    return isinstance(given, ast.Constant) and given.value is value
