"""C++ text to tokens, and what the preprocessor does to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|\"\"|''|::|->|\+\+|--|<=|>=|==|!=|&&|\|\||[-+*/%|&^]=|##|\.\.\.|\S")
COMMENT = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/|R\"\((.*?)\)\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\s+"([^"]+)"', re.MULTILINE)
OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = set(OPENING.values())
# These expand to nothing that decides; some of them to a page of tracing.
LEFT_ALONE = re.compile(
    r"OP_LOG\w*|L2_DFX\w*|DFX_\w*|CREATE_EXECUTOR|ADD_TO_LAUNCHER\w*|OP_CHECK_BROADCAST\w*|INFER_SHAPE"
)


@dataclass(frozen=True)
class Macro:
    """A #define; no parameters at all is another thing than an empty list of them."""

    parameters: tuple[str, ...] | None
    body: tuple[str, ...]


@dataclass
class Text:
    """A file as tokens, with its macros and what it includes."""

    tokens: list[str]
    macros: dict[str, Macro] = field(default_factory=dict)
    includes: list[str] = field(default_factory=list)


def bare(text: str) -> str:
    """The text without comments, its literals emptied."""

    def replacement(match: re.Match[str]) -> str:
        first = match.group()[0]
        return " " if first == "/" else '""' if first in '"R' else "''"

    return COMMENT.sub(replacement, text)


def read(text: str) -> Text:
    """Tokens of a file that is not yet expanded; of #if and #else both sides are kept."""
    includes = INCLUDE.findall(text)
    text = bare(text.replace("\r\n", "\n"))
    macros: dict[str, Macro] = {}

    def directive(match: re.Match[str]) -> str:
        if match.group(1) == "define":
            line = match.group(2).replace("\\\n", " ").strip()
            head = re.match(r"(\w+)(\(([^)]*)\))?(.*)", line, re.DOTALL)
            if head:
                named = head.group(3)
                parameters = None if named is None else tuple(p.strip() for p in named.split(",") if p.strip())
                macros[head.group(1)] = Macro(parameters, tuple(TOKEN.findall(head.group(4))))
        return ""

    return Text(TOKEN.findall(DIRECTIVE.sub(directive, text)), macros, includes)


def closing(tokens: list[str], start: int) -> int:
    """The place of the bracket that closes the one at `start`; the last place where none does."""
    depth = 0
    for place in range(start, len(tokens)):
        if tokens[place] in OPENING:
            depth += 1
        elif tokens[place] in CLOSING:
            depth -= 1
            if depth == 0:
                return place
    return len(tokens) - 1


def separated(tokens: list[str]) -> list[list[str]]:
    """The arguments between commas that no bracket holds."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        if token in OPENING:
            depth += 1
        elif token in CLOSING:
            depth -= 1
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def without_templates(tokens: list[str]) -> list[str]:
    """Types without what stands between < and >, whose commas separate no parameters."""
    found = []
    depth = 0
    for place, token in enumerate(tokens):
        if token == "<" and (depth or (tokens[place - 1 : place] and tokens[place - 1].isidentifier())):
            depth += 1
        elif token == ">" and depth:
            depth -= 1
        elif not depth:
            found.append(token)
    return found


def expand(tokens: list[str], macros: dict[str, Macro], within: frozenset[str] = frozenset()) -> list[str]:
    """The tokens after the preprocessor; a macro is not expanded within itself."""
    result: list[str] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        macro = macros.get(token)
        if macro is None or token in within or LEFT_ALONE.fullmatch(token):
            result.append(token)
            place += 1
        elif macro.parameters is None:
            result += expand(list(macro.body), macros, within | {token})
            place += 1
        elif place + 1 < len(tokens) and tokens[place + 1] == "(":
            end = closing(tokens, place + 1)
            given = separated(tokens[place + 2 : end])
            result += expand(substituted(macro, given, macros, within), macros, within | {token})
            place = end + 1
        else:
            result.append(token)
            place += 1
    return result


def substituted(macro: Macro, given: list[list[str]], macros: dict[str, Macro], within: frozenset[str]) -> list[str]:
    """The body of a macro with its arguments in place, `#x` emptied and `##` joined."""
    parameters = list(macro.parameters or ())
    arguments: dict[str, list[str]] = {}
    if parameters and parameters[-1].endswith("..."):
        rest = parameters.pop().removesuffix("...") or "__VA_ARGS__"
        joined: list[str] = []
        for argument in given[len(parameters) :]:
            joined += ([","] if joined else []) + argument
        arguments[rest] = joined
    arguments |= {name: given[i] if i < len(given) else [] for i, name in enumerate(parameters)}
    body = macro.body
    result: list[str] = []
    for place, token in enumerate(body):
        before = body[place - 1] if place else ""
        after = body[place + 1] if place + 1 < len(body) else ""
        if token == "##" or (token == "#" and after in arguments):
            continue
        if before == "#" and token in arguments:
            piece = ['""']
        elif token in arguments:
            pasted = "##" in (before, after)
            piece = arguments[token] if pasted else expand(arguments[token], macros, within)
        else:
            piece = [token]
        if before == "##" and result and piece and result[-1] != ",":
            result[-1] += piece[0]
            piece = piece[1:]
        result += piece
    return result
