"""C++ files as functions, classes and variables, and bodies of functions as statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from expressions import NAME_START, Parser, Tree
from tokens import OPENING, closing, separated, without_templates

QUALIFIERS = {
    "const",
    "static",
    "constexpr",
    "inline",
    "unsigned",
    "signed",
    "struct",
    "thread_local",
    "volatile",
    "mutable",
}
QUALIFIERS |= {"explicit", "virtual", "friend", "extern", "typename", "register", "auto"}
NOT_TYPES = {"return", "else", "delete", "new", "throw", "goto", "using", "typedef", "case", "default", "operator"}
ACCESS = {"public", "private", "protected"}


@dataclass
class Parameter:
    """A parameter: the last word of its type, and whether the caller sees what is assigned to it."""

    name: str
    kind: str
    shared: bool
    default: bool = False


@dataclass
class Function:
    """A function with its body as tokens; parsed when it is first walked."""

    name: str
    owner: str
    parameters: list[Parameter]
    tokens: list[str]
    starts: list[tuple[str, list[str]]] = field(default_factory=list)
    parsed: list[Tree] | None = None

    def body(self) -> list[Tree]:
        """The statements."""
        if self.parsed is None:
            self.parsed = statements(self.tokens)
        return self.parsed


@dataclass
class Class:
    """A class or struct: its fields in order, with what they start as, and what it derives from."""

    name: str
    bases: list[str]
    fields: dict[str, tuple[str, list[str]]] = field(default_factory=dict)


@dataclass
class Declarations:
    """What a file declares."""

    functions: dict[str, list[Function]] = field(default_factory=dict)
    variables: dict[str, list[str]] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)


def parameters_of(tokens: list[str]) -> list[Parameter]:
    """The parameters between the brackets of a function."""
    found = []
    for part in separated(without_templates(tokens)):
        default = "=" in part
        words = part[: part.index("=")] if default else part
        while words and words[-1] == "]":
            words = words[: len(words) - 1 - words[::-1].index("[")]
        names = [word for word in words if word[0] in NAME_START and word not in QUALIFIERS]
        if not names or names == ["void"]:
            continue
        name = names[-1] if len(names) > 1 else ""
        kinds = [word for word in names[:-1] if word.startswith("acl")] or names[:-1] or names
        # A reference to a pointer is assigned to even where what it points to is const.
        shared = "&" in words and ("const" not in words or words[words.index("&") - 1] == "*")
        found.append(Parameter(name, kinds[-1], shared, default))
    return found


def declarations(tokens: list[str], owner: str = "", into: Declarations | None = None) -> Declarations:
    """What stands at the level of a file, a namespace or a class."""
    found = into or Declarations()
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token in ACCESS and tokens[place + 1 : place + 2] == [":"]:
            place += 2
        elif token == "template":
            place = angle_end(tokens, place + 1) + 1
        elif token == "namespace" or (token == "extern" and tokens[place + 1 : place + 2] == ['""']):
            while place < len(tokens) and tokens[place] not in ("{", ";"):
                place += 1
            # What is in a namespace is read as if it were outside; its closing bracket is skipped below.
            place += 1
        elif token in ("}", ";"):
            place += 1
        elif token in ("struct", "class", "enum", "union"):
            place = class_at(tokens, place, owner, found)
        else:
            place = declaration_at(tokens, place, owner, found)
    return found


def angle_end(tokens: list[str], place: int) -> int:
    """The place of the `>` that closes the `<` here."""
    depth = 0
    while place < len(tokens):
        depth += {"<": 1, ">": -1}.get(tokens[place], 0)
        if depth == 0:
            return place
        place += 1
    return place


def class_at(tokens: list[str], place: int, owner: str, found: Declarations) -> int:
    """Read a class, struct or enumeration; where it is only the type of a declaration, that."""
    end = place
    while end < len(tokens) and tokens[end] not in ("{", ";", "(", "="):
        end += 1
    if end >= len(tokens) or tokens[end] in ("(", "="):
        return declaration_at(tokens, place + 1, owner, found)
    if tokens[end] == ";":
        return end + 1
    close = closing(tokens, end)
    head = tokens[place + 1 : end]
    if tokens[place] in ("struct", "class") and head:
        names = [word for word in head if word[0] in NAME_START and word not in ("final", *ACCESS, "virtual")]
        if names:
            name = names[0]
            found.classes[name] = Class(name, names[1:] if ":" in head else [])
            declarations(tokens[end + 1 : close], name, found)
    return close + 1


def declaration_at(tokens: list[str], place: int, owner: str, found: Declarations) -> int:
    """Read a function, a variable or a field; returns where the next declaration starts."""
    start = place
    while place < len(tokens):
        token = tokens[place]
        if token == "(":
            end = closing(tokens, place)
            body = body_start(tokens, end + 1)
            if body:
                function_at(tokens, start, place, end, body, owner, found)
                return closing(tokens, body) + 1
            place = end + 1
        elif token in ("=", "{"):
            end = place
            while end < len(tokens) and tokens[end] != ";":
                end = closing(tokens, end) + 1 if tokens[end] in OPENING else end + 1
            variable(tokens[start:place], tokens[place:end], owner, found)
            return end + 1
        elif token == ";":
            variable(tokens[start:place], [], owner, found)
            return place + 1
        elif token == "[":
            place = closing(tokens, place) + 1
        elif token == "}":
            return place + 1
        else:
            place += 1
    return place


def body_start(tokens: list[str], place: int) -> int:
    """The place of the bracket that opens a function's body after its parameters; 0 where there is none."""
    while place < len(tokens):
        token = tokens[place]
        if token == "{":
            return place
        if token == ":":
            # Initial values: name(...) or name{...}, by commas.
            place += 1
            while place < len(tokens):
                while place < len(tokens) and tokens[place] not in ("(", "{"):
                    place += 1
                place = closing(tokens, place) + 1
                if tokens[place : place + 1] != [","]:
                    break
            return place if tokens[place : place + 1] == ["{"] else 0
        if token not in ("const", "override", "noexcept", "final", "->", "&", "*") and token[0] not in NAME_START:
            return 0
        place += 1
    return 0


def function_at(
    tokens: list[str], start: int, opening: int, end: int, body: int, owner: str, found: Declarations
) -> None:
    """Note the function whose parameters and body are at these places."""
    first = opening - 1
    while first - 2 >= start and tokens[first - 1] == "::":
        first -= 2
    name = tokens[opening - 1]
    if name[0] not in NAME_START:
        return
    if first < opening - 1:
        owner = tokens[opening - 3]
    starts = []
    rest = tokens[end + 1 : body]
    if ":" in rest:
        for part in separated(rest[rest.index(":") + 1 :]):
            if len(part) > 2:
                starts.append((part[0], part[2:-1]))
    inside = tokens[body + 1 : closing(tokens, body)]
    function = Function(name, owner, parameters_of(tokens[opening + 1 : end]), inside, starts)
    found.functions.setdefault(name, []).append(function)


def variable(head: list[str], value: list[str], owner: str, found: Declarations) -> None:
    """Note a variable of a file or a field of a class."""
    if not head or head[0] in NOT_TYPES:
        return
    while head and head[-1] == "]":
        head = head[: len(head) - 1 - head[::-1].index("[")]
    if not head or head[-1][0] not in NAME_START:
        return
    value = value[1:] if value[:1] == ["="] else value
    if owner and owner in found.classes and "static" not in head:
        types = head[: head.index("<")] if "<" in head else head[:-1]
        kinds = [word for word in types if word[0] in NAME_START and word not in QUALIFIERS]
        found.classes[owner].fields[head[-1]] = (kinds[-1] if kinds else "", value)
    if value:
        found.variables[head[-1]] = value


def statements(tokens: list[str]) -> list[Tree]:
    """The statements of a body: ("if", condition, yes, no), ("loop", kind, head, body), ("switch", on, sections),
    ("return", x), ("declare", type, name, x), ("do", expression), ("leave",) for break and continue, ("block", body).
    """
    found = []
    place = 0
    while place < len(tokens):
        statement, place = statement_at(tokens, place)
        if statement:
            found.append(statement)
    return found


def statement_at(tokens: list[str], place: int) -> tuple[Tree | None, int]:
    """The statement here, and where the next one starts."""
    token = tokens[place]
    if token == ";":
        return None, place + 1
    if token == "{":
        end = closing(tokens, place)
        return ("block", statements(tokens[place + 1 : end])), end + 1
    if token == "if":
        return if_at(tokens, place)
    if token in ("for", "while", "switch"):
        opening = tokens.index("(", place)
        end = closing(tokens, opening)
        head = tokens[opening + 1 : end]
        if token == "switch":
            close = closing(tokens, end + 1)
            return ("switch", Parser(head).expression(), sections(tokens[end + 2 : close])), close + 1
        body, after = statement_at(tokens, end + 1) if end + 1 < len(tokens) else (None, end + 1)
        return loop(token, head, body), after
    if token == "do" and tokens[place + 1 : place + 2] == ["{"]:
        end = closing(tokens, place + 1)
        after = end + 1
        while after < len(tokens) and tokens[after] != ";":
            after = closing(tokens, after) + 1 if tokens[after] in OPENING else after + 1
        return ("loop", "once", None, ("block", statements(tokens[place + 2 : end]))), after + 1
    end = place
    while end < len(tokens) and tokens[end] != ";":
        end = closing(tokens, end) + 1 if tokens[end] in OPENING else end + 1
    return simple(tokens[place:end]), end + 1


def if_at(tokens: list[str], place: int) -> tuple[Tree, int]:
    """An if with its else."""
    opening = tokens.index("(", place)
    end = closing(tokens, opening)
    head = tokens[opening + 1 : end]
    first: Tree | None = None
    if ";" in head:
        first = simple(head[: head.index(";")])
        head = head[head.index(";") + 1 :]
    yes, after = statement_at(tokens, end + 1) if end + 1 < len(tokens) else (None, end + 1)
    no: Tree | None = None
    if tokens[after : after + 1] == ["else"] and after + 1 < len(tokens):
        no, after = statement_at(tokens, after + 1)
    named = declared(head)
    condition = named[3] if named and named[3] else Parser(head).expression()
    result: Tree = ("if", condition, yes, no)
    return (("block", [first, result]) if first else result), after


def loop(kind: str, head: list[str], body: Tree | None) -> Tree:
    """A loop: over the items of something, or with a start that is executed once."""
    if kind == "for" and ";" not in head and ":" in head:
        at = head.index(":")
        return ("loop", "each", (head[at - 1], Parser(head[at + 1 :]).expression()), body)
    start = simple(head[: head.index(";")]) if kind == "for" and ";" in head else None
    return ("loop", kind, start, body)


def sections(tokens: list[str]) -> list[tuple[list[Tree | None], list[Tree]]]:
    """The sections of a switch: their labels (None is the default), and the statements."""
    found: list[tuple[list[Tree | None], list[Tree]]] = []
    place = 0
    while place < len(tokens):
        if tokens[place] in ("case", "default"):
            end = place + 1
            while end < len(tokens) and tokens[end] != ":":
                end += 1
            label = None if tokens[place] == "default" else Parser(tokens[place + 1 : end]).expression()
            if found and not found[-1][1]:
                found[-1][0].append(label)
            else:
                found.append(([label], []))
            place = end + 1
        else:
            statement, place = statement_at(tokens, place)
            if statement and found:
                found[-1][1].append(statement)
    return found


def simple(tokens: list[str]) -> Tree | None:
    """A statement without a body."""
    if not tokens:
        return None
    if tokens[0] == "return":
        return ("return", Parser(tokens, 1).expression() if len(tokens) > 1 else None)
    if tokens[0] in ("break", "continue"):
        return ("leave", tokens[0])
    if tokens[0] in NOT_TYPES:
        return None
    return declared(tokens) or ("do", Parser(tokens).expression())


def declared(tokens: list[str]) -> Tree | None:
    """A declaration of a variable with its type's last word; None if the tokens are none."""
    place, kind, named = 0, "", False
    while place < len(tokens) and tokens[place] in QUALIFIERS:
        named = named or tokens[place] in ("auto", "unsigned")
        place += 1
    if not named:
        if place >= len(tokens) or tokens[place][0] not in NAME_START:
            return None
        while True:
            kind = tokens[place]
            place += 1
            if tokens[place : place + 1] == ["<"]:
                place = angle_end(tokens, place) + 1
            if tokens[place : place + 1] != ["::"]:
                break
            place += 1
            if place >= len(tokens):
                return None
    while place < len(tokens) and tokens[place] in ("*", "&", "const", *(["int", "long"] if named else [])):
        place += 1
    if place >= len(tokens) or tokens[place][0] not in NAME_START:
        return None
    name = tokens[place]
    place += 1
    while tokens[place : place + 1] == ["["]:
        place = closing(tokens, place) + 1
    rest = tokens[place:]
    if not rest:
        return ("declare", kind, name, None)
    if rest[0] == "=":
        return ("declare", kind, name, Parser(rest, 1).expression())
    if rest[0] in ("(", "{"):
        parser = Parser(rest)
        return ("declare", kind, name, ("made", kind, parser.arguments()))
    if rest[0] == ",":
        return ("declare", kind, name, None)
    return None
