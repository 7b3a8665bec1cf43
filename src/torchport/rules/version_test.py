"""The value that a condition on the version of torch, torchvision, numpy or Python has with the versions of today.

Code of 2019 cuts versions: `float(torchvision.__version__[:3]) < 0.7` is true of 0.28, which is cut to 0.2.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from torchport.knowledge.removed import read_versions
from torchport.source.module import Module
from torchport.source.names import Binds

PYTHON = (3, 11)  # torchport needs it
_DEPTH = 8
_PARSES = re.compile(r"(?:.*\.)?(?:parse|parse_version|Version|LooseVersion|StrictVersion)")
_PACKAGES = ("torch", "torchvision", "numpy")
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, others: one in others,
    ast.NotIn: lambda one, others: one not in others,
}


class _UnknownError(Exception):
    """The value of an expression is not to be seen."""


class _Numbers(tuple[int, ...]):
    """A version that is compared by its numbers, with texts too: packaging's, and torch's own."""

    @classmethod
    def of(cls, text: str) -> _Numbers:
        found = re.match(r"\d+(?:\.\d+)*", text)
        if found is None:
            raise _UnknownError
        numbers = [int(word) for word in found[0].split(".")]
        while numbers and numbers[-1] == 0:
            numbers.pop()
        return cls(numbers)


class _TorchVersion(str):
    """`torch.__version__`: a text that compares by its numbers (torch.torch_version.TorchVersion, since 1.10)."""

    __slots__ = ()


def decide_test(module: Module, test: ast.expr) -> bool | None:
    """Whether a condition on versions holds today; None for any other, and for one that is not followed."""
    if not names_version(module, test):
        return None
    try:
        return bool(_value(module, test, _DEPTH))
    except (_UnknownError, ValueError, TypeError, IndexError, AttributeError):
        return None


def names_version(module: Module, node: ast.expr, depth: int = 1) -> bool:
    """Whether a condition reads a version, in place or by a variable."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and one.attr in ("__version__", "version_info"):
            return True
        if isinstance(one, ast.Name) and depth:
            values = [each.value for each in module.names.find_bindings(one) if each.how is Binds.VALUE]
            if len(values) == 1 and values[0] is not None and names_version(module, values[0], depth - 1):
                return True
    return False


def _value(module: Module, node: ast.expr, depth: int) -> Any:
    if depth == 0:
        raise _UnknownError
    name = module.resolve_name(node) if isinstance(node, ast.Attribute | ast.Name) else None
    if name == "sys.version_info":
        return PYTHON
    if name is not None and name.endswith(".__version__") and name.removesuffix(".__version__") in _PACKAGES:
        version = read_versions()[name.partition(".")[0]]
        return _TorchVersion(version) if name.startswith("torch.") else version
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name():
            found = module.names.find_bindings(node)
            if len(found) == 1 and found[0].how is Binds.VALUE and found[0].value is not None:
                return _value(module, found[0].value, depth - 1)
            raise _UnknownError
        case ast.Tuple(elts=items) | ast.List(elts=items):
            values = [_value(module, item, depth - 1) for item in items]
            return tuple(values) if isinstance(node, ast.Tuple) else values
        case ast.Subscript(value=owner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
            ends = [None if one is None else _value(module, one, depth - 1) for one in (lower, upper)]
            whole = _value(module, owner, depth - 1)
            return (str(whole) if isinstance(whole, _TorchVersion) else whole)[ends[0] : ends[1]]
        case ast.Subscript(value=owner, slice=index):
            return _value(module, owner, depth - 1)[_value(module, index, depth - 1)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(module, operand, depth - 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(module, operand, depth - 1)
        case ast.BoolOp(op=which, values=parts):
            return _joined(module, isinstance(which, ast.And), parts, depth - 1)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _compare(type(op), _value(module, left, depth - 1), _value(module, right, depth - 1))
        case ast.Attribute(value=ast.expr() as owner, attr="base_version" | "release" | "version"):
            return _value(module, owner, depth - 1)
        case ast.Attribute(value=ast.expr() as owner, attr="major" | "minor" | "micro" as part):
            numbers = (*_value(module, owner, depth - 1), 0, 0)
            return numbers[("major", "minor", "micro").index(part)]
        case ast.Call():
            return _called(module, node, depth - 1)
        case _:
            raise _UnknownError


def _joined(module: Module, is_and: bool, parts: list[ast.expr], depth: int) -> bool:
    """`and` and `or`, where one part may be unknown and not matter."""
    unknown = False
    for part in parts:
        try:
            if bool(_value(module, part, depth)) is not is_and:
                return not is_and
        except (_UnknownError, ValueError, TypeError, IndexError, AttributeError):
            unknown = True
    if unknown:
        raise _UnknownError
    return is_and


def _compare(op: type[ast.cmpop], left: Any, right: Any) -> Any:
    if any(isinstance(one, _Numbers | _TorchVersion) for one in (left, right)) and op not in (ast.In, ast.NotIn):
        left, right = (_Numbers.of(one) if isinstance(one, str) else one for one in (left, right))
    if left is PYTHON and isinstance(right, tuple) and right > PYTHON:
        raise _UnknownError  # it may be a later one
    return _COMPARE[op](left, right)


def _called(module: Module, call: ast.Call, depth: int) -> Any:
    if call.keywords:
        raise _UnknownError
    arguments = call.args
    match call.func, arguments:
        case ast.Attribute(value=owner, attr="split" | "startswith" | "replace" | "rstrip" | "partition" as method), _:
            if module.resolve_name(call.func) is not None and not isinstance(_value(module, owner, depth), str):
                raise _UnknownError
            return getattr(str(_value(module, owner, depth)), method)(
                *(_value(module, one, depth) for one in arguments)
            )
        case ast.Name(id="map"), [ast.Name(id="int"), values]:
            return tuple(map(int, _value(module, values, depth)))
        case ast.Name(id="float" | "int" | "str" | "tuple" | "list" as kind), [argument]:
            value = _value(module, argument, depth)
            return {"float": float, "int": int, "str": str, "tuple": tuple, "list": list}[kind](value)
        case _, [argument] if _PARSES.fullmatch(module.resolve_name(call.func) or ""):
            value = _value(module, argument, depth)
            return value if isinstance(value, _Numbers) else _Numbers.of(str(value))
        case _:
            raise _UnknownError
