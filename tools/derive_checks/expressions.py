"""C++ expressions as trees: tuples whose first word says what they are.

("number", 8), ("text",), ("name", "op::DataType::DT_BF16"), ("call", function, arguments), ("member", object, name),
("index", object, at), ("unary", "!", x), ("binary", "==", a, b), ("choice", condition, a, b), ("assign", "=", to, x),
("list", items), ("made", type, arguments) for `Type{...}`, ("lambda", parameters, tokens of the body).
"""

from __future__ import annotations

from typing import Any

from tokens import closing, separated

Tree = tuple[Any, ...]
BINARY = [{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="}, {"+", "-"}, {"*", "/", "%"}]
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "|=", "&=", "%=", "^="}
UNARY = {"!", "-", "+", "*", "&", "~", "++", "--"}
PRIMITIVE = {"int", "bool", "float", "double", "size_t", "char", "unsigned", "long", "short", "DataType", "aclDataType"}
PRIMITIVE |= {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
CASTS = {"static_cast", "const_cast", "reinterpret_cast", "dynamic_cast"}
NAME_START = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
UNKNOWN: Tree = ("unknown",)


class Parser:
    """One expression after the other from a list of tokens."""

    def __init__(self, tokens: list[str], place: int = 0) -> None:
        self.tokens = tokens
        self.place = place

    def next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1] if self.place <= len(self.tokens) else ""

    def expression(self) -> Tree:
        """An assignment, a choice or what binds stronger."""
        left = self.binary(0)
        token = self.next()
        if token == "?":
            self.take()
            yes = self.expression()
            if self.next() == ":":
                self.take()
            return ("choice", left, yes, self.expression())
        if token in ASSIGNMENTS:
            self.take()
            return ("assign", token, left, self.expression())
        return left

    def binary(self, level: int) -> Tree:
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.next() in BINARY[level]:
            # `<<` and `>>` come as two tokens; what they shift or print decides nothing.
            operator = self.take()
            if self.next() == operator and operator in "<>":
                self.take()
                self.binary(level + 1)
                left = UNKNOWN
                continue
            left = ("binary", operator, left, self.binary(level + 1))
        return left

    def unary(self) -> Tree:
        token = self.next()
        if token in UNARY:
            self.take()
            return ("unary", token, self.unary())
        if token == "(":
            end = closing(self.tokens, self.place)
            inside = self.tokens[self.place + 1 : end]
            kind = [word for word in inside if word not in ("const", "*", "&", "::")]
            after = self.tokens[end + 1] if end + 1 < len(self.tokens) else ""
            if kind and kind[-1] in PRIMITIVE and (after == "(" or after[:1] in NAME_START or after[:1].isdigit()):
                self.place = end + 1
                return self.unary()
        if token == "new":
            self.take()
            while self.next() == "(":
                self.place = closing(self.tokens, self.place) + 1
            return self.unary()
        return self.postfix(self.primary())

    def postfix(self, left: Tree) -> Tree:
        while True:
            token = self.next()
            if token == "(":
                left = ("call", left, self.arguments())
            elif token == "[":
                self.take()
                at = self.expression() if self.next() != "]" else UNKNOWN
                if self.next() == "]":
                    self.take()
                left = ("index", left, at)
            elif token in (".", "->"):
                self.take()
                left = ("member", left, self.name())
            elif token in ("++", "--"):
                self.take()
                left = ("unary", token, left)
            elif token == "{" and left[0] == "name":
                left = ("made", left[1], self.arguments())
            else:
                return left

    def arguments(self) -> tuple[Tree, ...]:
        """What stands between the brackets here, by its commas."""
        end = closing(self.tokens, self.place)
        self.take()
        found = []
        while self.place < end:
            before = self.place
            if self.next() == ",":
                self.take()
                continue
            found.append(self.expression())
            if self.place == before:
                break
        self.place = end + 1
        return tuple(found)

    def name(self) -> str:
        """A name with its scopes; arguments of templates are left out, except that a cast's are skipped with it."""
        parts = []
        while True:
            if self.next() == "template":
                self.take()
            if self.next() == "~":
                self.take()
            parts.append(self.take())
            if self.next() == "<":
                end = self.template_end()
                if end:
                    if parts[-1] in ("make_unique", "make_shared", "get"):
                        inside = [word for word in self.tokens[self.place + 1 : end] if word != "::"]
                        parts[-1] += f"<{inside[-1] if inside else ''}>"
                    self.place = end + 1
            if self.next() != "::":
                return "::".join(part for part in parts if part)
            self.take()

    def template_end(self) -> int:
        """The place of the `>` that ends template arguments which start here; 0 if it is a comparison."""
        depth = 0
        for place in range(self.place, len(self.tokens)):
            token = self.tokens[place]
            if token == "<":
                depth += 1
            elif token == ">":
                depth -= 1
                if depth == 0:
                    after = self.tokens[place + 1] if place + 1 < len(self.tokens) else ""
                    return place if after in ("(", "{", "::") else 0
            elif not (token[0] in NAME_START or token[0].isdigit() or token in ("::", ",", "*", "&")):
                return 0
        return 0

    def primary(self) -> Tree:
        token = self.next()
        if token == "(":
            end = closing(self.tokens, self.place)
            self.take()
            inner = self.expression()
            self.place = end + 1
            return inner
        if token == "{":
            return ("list", self.arguments())
        if token == "[":
            return self.unnamed()
        if token in ('""', "''"):
            while self.next() == token:
                self.take()
            return ("text",)
        if token[:1].isdigit():
            self.take()
            return number(token)
        if token == "::":
            self.take()
            token = self.next()
        if token[:1] in NAME_START:
            name = self.name()
            if name in CASTS and self.next() == "(":
                return self.primary()
            if name.split("::")[-1] in PRIMITIVE and self.next() in ("(", "{"):
                arguments = self.arguments()
                return arguments[0] if arguments else ("number", 0)
            return ("name", name)
        self.take()
        return UNKNOWN

    def unnamed(self) -> Tree:
        """A lambda."""
        self.place = closing(self.tokens, self.place) + 1
        names: tuple[str, ...] = ()
        if self.next() == "(":
            end = closing(self.tokens, self.place)
            parts = separated(self.tokens[self.place + 1 : end])
            names = tuple(part[-1] for part in parts if part)
            self.place = end + 1
        while self.next() not in ("{", ""):
            self.take()
        end = closing(self.tokens, self.place)
        body = self.tokens[self.place + 1 : end]
        self.place = end + 1
        return ("lambda", names, tuple(body))


def number(token: str) -> Tree:
    """A whole number, 1.0f as well; what is not one as something unknown."""
    digits = token.rstrip("uUlL").replace("'", "")
    try:
        return ("number", int(digits, 0))
    except ValueError:
        pass
    try:
        value = float(token.rstrip("fFlL"))
    except ValueError:
        return UNKNOWN
    return ("number", int(value)) if value.is_integer() else UNKNOWN
