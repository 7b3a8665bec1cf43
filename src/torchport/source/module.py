"""One parsed Python file, as rules see it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from typing import TypeVar, cast

from torchport.findings import Edit
from torchport.source.classes import Classes
from torchport.source.definitions import Definitions
from torchport.source.flow import Flow
from torchport.source.names import Names
from torchport.source.text import SourceText

Node = TypeVar("Node", bound=ast.AST)
_STRING = re.compile(r"""(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"\"\"|'''|"|')(?P<body>.*)(?P=quote)""", re.DOTALL)


class Module:
    """Text, tree, names and value classes of one file. Raises SourceError for what cannot be read or parsed.

    `project` says what the other files of its project define.
    """

    def __init__(self, path: str, data: bytes, project: Definitions | None = None) -> None:
        self.project = project or Definitions()
        self.text = SourceText(path, data)
        self.tree = self.text.parse()
        self.names = Names(self.tree)

    @functools.cached_property
    def classes(self) -> Classes:
        return Classes(self.names)

    @functools.cached_property
    def flow(self) -> Flow:
        return Flow(self.names, self.classes)

    @functools.cached_property
    def _by_type(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in self.names.nodes:
            found.setdefault(type(node), []).append(node)
        return found

    def iter_nodes(self, kind: type[Node]) -> Iterator[Node]:
        """Every node of exactly this type."""
        return iter(cast(list[Node], self._by_type.get(kind, [])))

    def resolve_name(self, node: ast.expr) -> str | None:
        """The dotted name of what an expression means (see `Names.resolve_name`)."""
        return self.names.resolve_name(node)

    def get_parent(self, node: ast.AST) -> ast.AST | None:
        return self.names.parents.get(node)

    def find_block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which a statement stands."""
        above = self.get_parent(statement)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(above, name, None)
            if isinstance(statements, list) and statement in statements:
                return statements
        return [statement]

    # -- edits, as byte ranges of single words -----------------------------------------------------------------

    def attribute_edit(self, node: ast.Attribute, new: str) -> Edit | None:
        """Replace the word after the last dot. None where the text is not that word (a place that `ast` got wrong
        inside an f-string, or an identifier in another Unicode form)."""
        _, end = self.text.span(node)
        start = end - len(node.attr.encode(self.text.encoding, "replace"))
        return Edit(start, end, new.encode()) if self.text.decode_range(start, end) == node.attr else None

    def name_edit(self, node: ast.Name, new: str) -> Edit | None:
        """Replace a name; None as for `attribute_edit`."""
        start, end = self.text.span(node)
        return Edit(start, end, new.encode()) if self.text.decode_range(start, end) == node.id else None

    def string_edit(self, node: ast.Constant | ast.JoinedStr, old: str, new: str) -> Edit | None:
        """Replace the text `old` at the start of a string literal's content.

        None where the literal is not one token with plain content (implicit concatenation, escapes).
        """
        content = self.string_content(node)
        if content is None or not content[1].startswith(old):
            return None
        begin = content[0]
        return Edit(begin, begin + len(old.encode(self.text.encoding)), new.encode(self.text.encoding))

    def string_content(self, node: ast.Constant | ast.JoinedStr) -> tuple[int, str] | None:
        """The byte offset at which the content of a string literal starts, and the content as it is written.

        None where the literal is not one token with plain content (implicit concatenation, escapes).
        """
        start, end = self.text.span(node)
        found = _STRING.fullmatch(self.text.decode_range(start, end))
        if found is None:
            return None
        if isinstance(node, ast.Constant) and found["body"] != node.value:
            return None
        if isinstance(node, ast.JoinedStr) and found["quote"] in found["body"]:
            return None
        return start + len((found["prefix"] + found["quote"]).encode(self.text.encoding)), found["body"]

    def get_source(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        return self.text.decode_range(*self.text.span(node))
