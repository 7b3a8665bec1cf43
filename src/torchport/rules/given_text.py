"""The string literals that reach an argument: those of the expression itself and those that variables hold."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator

from torchport.findings import Edit, Finding
from torchport.source.module import Module

Literal = ast.Constant | ast.JoinedStr
# Calls that give back the text of their first argument, or of what they are a method of, nearly as it is.
_SAME = frozenset({"dedent", "strip", "format", "cleandoc"})


def find_argument_literals(module: Module, arguments: Iterable[ast.expr]) -> Iterator[Literal]:
    """The literals with text that the arguments are made of, each once, in the order of the file."""
    found: dict[int, Literal] = {}
    pending, roots = list(arguments), set()
    while pending:
        node = pending.pop()
        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                found[id(node)] = node
            case ast.BinOp(left=left, right=right):
                pending += [left, right]
            case ast.IfExp(body=body, orelse=orelse):
                pending += [body, orelse]
            case ast.Call(func=ast.Attribute(attr=name, value=owner), args=arguments_) if name in _SAME:
                pending += [owner, *arguments_[:1]]
            case ast.Name() | ast.Attribute():
                roots.add(module.flow.find(node))
            case _:
                pass
    if roots:
        kinds: list[Literal] = [*module.iter_nodes(ast.JoinedStr), *module.iter_nodes(ast.Constant)]
        for literal in kinds:
            if module.flow.find(literal) in roots and _is_text(module, literal):
                found[id(literal)] = literal
    yield from sorted(found.values(), key=lambda one: (one.lineno, one.col_offset))


def place_finding(module: Module, finding: Finding, start: int, end: int) -> Finding:
    """The finding at the byte range of a part of a literal, with its text as evidence."""
    return dataclasses.replace(
        finding,
        location=module.text.to_location(start, end),
        evidence={"source": module.text.decode_range(start, min(end, start + 400))},
    )


def shift_edits(edits: Iterable[Edit], by: int) -> list[Edit | None]:
    """Edits of a text as edits of the file that has the text at the byte offset `by`."""
    return [Edit(edit.start + by, edit.end + by, edit.replacement) for edit in edits]


def _is_text(module: Module, node: Literal) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    return isinstance(node.value, str) and not isinstance(
        module.get_parent(node), ast.JoinedStr | ast.FormattedValue | ast.Expr
    )
