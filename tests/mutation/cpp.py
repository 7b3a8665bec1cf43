"""As much of C++ as the mutation check has to see: tokens, brackets, functions, operator lines.

Relies on the style that `make format` gives the sources: a binary operator stands between blanks, the `<` of template
arguments directly after its name, an operator's line at the start of a line.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from functools import cached_property

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*)
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<number>\d(?:[\w.]|(?<=[eE])[+-])*)
      | (?P<name>(?:::)?~?[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)*)
      | (?P<mark><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||::|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
OPENING = {"(": ")", "[": "]", "{": "}"}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
STATEMENTS = {"if", "for", "while", "switch"}  # followed by a condition in parentheses
KEYWORDS = STATEMENTS | {"return", "else", "do", "case", "throw", "constexpr", "const", "auto", "void", "mutable"}
DEFINE = re.compile(r"^#define (\w+)\(([^)]*)\)((?:\\\n|[^\n])*)", re.MULTILINE)
OPERATOR = re.compile(r"^([A-Z][A-Z0-9_]*)\(\s*(?=acl\w)", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """`text` at [start, end) of the source; `apart`: blanks on both sides."""

    kind: str
    text: str
    start: int
    end: int
    apart: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """Code that runs: the tokens [first, last) of a function's body, or of what an operator's line does."""

    name: str
    first: int
    last: int
    operator: bool  # an operator's line; `name` is the operator
    method: bool = False
    parameters: tuple[tuple[str, str], ...] = ()  # of a function: (type, name)


class Source:
    """One file of csrc/opapi. Raises ValueError where brackets do not match."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.match: dict[int, int] = {}  # bracket -> its partner, both ways
        self.parent: list[int] = []  # the bracket that a token is in; -1 outside of all
        open_brackets: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind == "mark" and token.text in OPENING.values():
                if not open_brackets or OPENING[self.tokens[open_brackets[-1]].text] != token.text:
                    raise ValueError(f"{token.text} at {token.start} closes nothing")
                self.match[index] = open_brackets.pop()
                self.match[self.match[index]] = index
            self.parent.append(open_brackets[-1] if open_brackets else -1)
            if token.kind == "mark" and token.text in OPENING:
                open_brackets.append(index)
        if open_brackets:
            raise ValueError(f"the bracket at {self.tokens[open_brackets[-1]].start} is not closed")

    def is_(self, index: int, *texts: str) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].text in texts

    def slice(self, first: int, last: int) -> str:
        """The tokens [first, last) in one line, without comments."""
        parts = []
        for index in range(first, last):
            gap = index > first and self.tokens[index - 1].end < self.tokens[index].start
            parts += [" " if gap else "", self.tokens[index].text]
        return "".join(parts)

    def arguments(self, bracket: int) -> list[tuple[int, int]]:
        """Token ranges between the commas of a bracket."""
        ranges, first, index = [], bracket + 1, bracket + 1
        while index < self.match[bracket]:
            if self.is_(index, ","):
                ranges.append((first, index))
                first = index + 1
            index = self.match.get(index, index) + 1
        return [*ranges, (first, index)] if index > bracket + 1 else []

    def segment(self, index: int) -> tuple[int, int]:
        """The expression around a token: as far as commas, assignments, `return`, `?` and `:`, brackets reach."""
        first, last = min(index, self.match.get(index, index)), index
        while first - 1 > self.parent[index] and not self._begins_after(first - 1):
            first = self.match.get(first - 1, first - 1)
        end = self.match.get(self.parent[index], len(self.tokens))
        while last < end and not self.is_(last, ",", ";", "?", ":"):
            last = max(self.match.get(last, last), last) + 1
        return first, last

    def _begins_after(self, index: int) -> bool:
        token = self.tokens[index]
        if token.text in {",", ";", "?", ":", "{", "return", "else", "case", "<<"} | ASSIGNMENTS:
            return True
        if token.text == ")":  # of `if (...)`
            return self.is_(self.match[index] - 1, *STATEMENTS, "constexpr")
        if token.text == "}":  # of a block, not of a value `Name{...}`
            before = self.tokens[self.match[index] - 1]
            return before.kind != "name" or before.text in KEYWORDS
        return False

    def chain(self, index: int) -> int:
        """Where the operand that ends with token `index` begins: `a.b(c)[d]`."""
        while True:
            if self.is_(index, ")", "]"):
                index = self.match[index]
                before = self.tokens[index - 1]
                if (before.kind == "name" and before.text not in KEYWORDS) or before.text in (")", "]"):
                    index -= 1
                    continue
            if self.is_(index - 1, ".", "->"):
                index -= 2
                continue
            return index

    @cached_property
    def macros(self) -> dict[str, tuple[list[str], str]]:
        return {
            name: ([one.strip() for one in parameters.split(",")], body)
            for name, parameters, body in DEFINE.findall(self.text)
        }

    def regions(self) -> list[Region]:
        return [*self._operators(), *self._functions(0, len(self.tokens))]

    def _operators(self) -> Iterator[Region]:
        starts = {token.start: index for index, token in enumerate(self.tokens)}
        for found in OPERATOR.finditer(self.text):
            index = starts[found.start()]
            arguments = self.arguments(index + 1)
            name = self.slice(*arguments[0])
            for first, last in self._running(found[1], arguments):
                yield Region(name, first, last, operator=True)

    def _running(self, macro: str, arguments: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The arguments of an operator's line that its second phase runs."""
        if macro == "OP":
            return [(arguments[2][0], arguments[-1][1])]
        parameters, body = self.macros[macro]
        inner = Source(body.replace("\\\n", "\n"))
        inner.macros = self.macros
        head = inner.tokens[0].text
        if head != "OP" and head not in self.macros:
            return []  # not an operator in two phases
        runs = " ".join(inner.slice(*part) for part in inner._running(head, inner.arguments(1)))
        ranges = [
            (arguments[position][0], arguments[-1 if parameter == "..." else position][1])
            for position, parameter in enumerate(parameters)
            if position < len(arguments)
        ]
        return [
            part
            for parameter, part in zip(parameters, ranges, strict=False)
            if re.search(rf"\b{parameter.replace('...', '__VA_ARGS__')}\b", runs)
        ]

    def _functions(self, first: int, last: int, method: bool = False) -> Iterator[Region]:
        """Functions of a namespace or class whose tokens are [first, last)."""
        begin = index = first
        while index < last:
            if self.is_(index, "{"):
                statement = [i for i in range(begin, index) if self.parent[i] == self.parent[index]]
                opening = next((i for i in statement if self.is_(i, "(")), None)
                texts = {self.tokens[i].text for i in statement}
                if opening is not None and "=" not in texts:
                    header_end = self.match[opening]
                    yield Region(
                        self.tokens[opening - 1].text,
                        header_end + 1,
                        self.match[index],
                        operator=False,
                        method=method,
                        parameters=tuple(self._parameters(opening)),
                    )
                elif texts & {"namespace", "struct", "class", "extern"} and "=" not in texts:
                    yield from self._functions(index + 1, self.match[index], bool(texts & {"struct", "class"}))
                begin = self.match[index] + 1
            elif self.is_(index, ";") or (self.is_(index, ":") and self.is_(index - 1, "public", "private")):
                begin = index + 1
            index = self.match.get(index, index) + 1

    def _parameters(self, opening: int) -> Iterator[tuple[str, str]]:
        for first, last in self.arguments(opening):
            words = [token.text for token in self.tokens[first:last]]
            if "=" in words:
                words = words[: words.index("=")]
            if len(words) > 1:
                yield " ".join(words[:-1]), words[-1]


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        assert found is not None and found.lastgroup is not None
        if found.lastgroup == "skip":
            position = found.end()
            continue
        end = found.end()
        if found.lastgroup == "name" and text.startswith("<", end):
            end = _template_end(text, end)
        before, after = text[found.start() - 1 : found.start()], text[end : end + 1]
        yield Token(
            found.lastgroup, text[found.start() : end], found.start(), end, before.isspace() and after.isspace()
        )
        position = end


def _template_end(text: str, position: int) -> int:
    """Past `<...>` and a `::name` behind it."""
    depth = 0
    for index in range(position, len(text)):
        depth += {"<": 1, ">": -1}.get(text[index], 0)
        if depth == 0:
            behind = re.compile(r"(?:::\w+)+").match(text, index + 1)
            return behind.end() if behind else index + 1
    raise ValueError(f"the template arguments at {position} do not end")
