"""Python code inside other text: `python -c "..."`, here-documents, lists of arguments, blocks of YAML.

A program is given as Python sees it, after the shell's quotes, and with the place in the file of each of its
characters, so that an edit of the code becomes an edit of the file. A value that the shell, make or a workflow
puts in (`$RANK`, `$(DEVICE)`, `${{ matrix.x }}`) stands as zeros or as a name, and has no place.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence

from torchport.source.kinds import Kind, is_comment

_LONGEST = 50_000  # characters of one program
_MOST = 500  # programs of one file

# Values that are put in later: ${{ x }} of workflows, $VAR and ${VAR} and $(x), doubled in a Makefile, and `x`.
_FILLED = re.compile(r"\$\{\{.*?\}\}|\$?\$\{[^}\n]*\}|\$?\$\([^()\n]*\)|\$?\$[A-Za-z_]\w*|\$?\$[0-9@*#?!$<^]|`[^`\n]*`")
_OF_MAKE = re.compile(r"\$\{\{.*?\}\}|\$\(\w+\)|\$\{\w+\}")  # also between single quotes
_SAYS_PYTHON = re.compile(r"python|(?<![A-Z])PY(?:EXE|BIN)?\b|/dev/stdin|\.py\b", re.IGNORECASE)
# The program in front of -c, with its options: python -u -W ignore, "$PYTHON", ["python3", "-u",
_RUNS_PYTHON = re.compile(
    r"""(?:python|\bPY(?:EXE|BIN)?\b)[\w.]*[)}"',]*"""
    r"""(?:[\s\\]+["']?-[A-Za-z][\w=:]*["',]*(?:[\s\\]+\w[\w:=]*(?=\s+-|\s*$))?)*[\s\\"']*$""",
    re.IGNORECASE,
)
_RUNS_SOMETHING = re.compile(r"""\$\$?[\w{(]\w*[)}]?["']*[\s\\]*$""")  # $RUN -c: may be Python
_LOOKS_PYTHON = re.compile(r"[(=;]|\bimport\b")  # `conda install python -c nvidia` is none
_OPTION = re.compile(r"""(?<=[\s"'])-[A-Za-z]*c(?P<list>["']\s*,\s*(?=["'])|(?:[ \t]|\\\r?\n)+(?=\S))""")
_ITEM = re.compile(r"""^[ \t]*-[ \t]+(["']?)-[A-Za-z]*c\1[ \t]*\r?\n[ \t]*-[ \t]+(?=[^\s|>])""", re.MULTILINE)
_HERE = re.compile(r"""(?<!<)<<(?!<)(?P<dash>-?)[ \t]*(?P<quote>\\?["']?)(?P<word>[A-Za-z_][\w.-]*)["']?""")
_BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)(?:-[ \t]+)?(?:[^\s#][^\n]*?:[ \t]+|-[ \t]+)[|>][-+0-9]*[ \t]*\r?$", re.MULTILINE
)
_IMPORTS = re.compile(r"^[ \t]*(?:import|from)[ \t]+\w", re.MULTILINE)
_IMPORTS_TORCH = re.compile(r"(?:^|[;\n])[ \t]*(?:import|from)[ \t]+torch\b")
_END_OF_WORD = frozenset(" \t\r\n;|&()<>")
_ESCAPED = frozenset('$`"\\')


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Python code in a file: `places[i]` is the character of the file that is `code[i]`, None where it has none.

    `start` and `end` are the characters of the file between which the code stands. `indent` is what each of its lines
    has in front in the file. `forbidden` are the characters that new code must not have there.
    """

    code: str
    places: Sequence[int | None]
    start: int
    end: int
    indent: str
    forbidden: frozenset[str]

    def to_range(self, first: int, last: int) -> tuple[int, int] | None:
        """The characters of the file that are code[first:last]; None where these are not the same characters."""
        if first == last:
            return self._to_insertion(first)
        places = self.places[first:last]
        begin = places[0]
        if begin is None or any(place != begin + index for index, place in enumerate(places)):
            return None
        return begin, begin + len(places)

    def to_place(self, at: int) -> int:
        """The character of the file at which a finding about code[at] stands."""
        known = (place for place in self.places[at:] if place is not None)
        return next(known, self.end)

    def _to_insertion(self, at: int) -> tuple[int, int] | None:
        after = self.places[at] if at < len(self.places) else None
        before = self.places[at - 1] if at else None
        if before is not None and (at == len(self.places) or self.code[at - 1] != "\n"):
            return before + 1, before + 1
        return (after, after) if after is not None else None


class _Code:
    """Characters with their places, as they are read."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.places: list[int | None] = []

    def add(self, char: str, place: int | None) -> None:
        self.text.append(char)
        self.places.append(place)

    def add_filled(self, length: int) -> None:
        for _ in range(length):
            self.add("\0", None)


def find_programs(text: str, kind: Kind) -> tuple[Program, ...]:
    """The Python programs in a file of another kind, in their order; none of them lies in another.

    A text counts as a program if it is given to Python, or begins with imports, and can be parsed.
    """
    if "import" not in text:
        return ()
    found: list[Program] = []
    end = 0
    candidates = sorted(itertools.islice(_candidates(text, kind), _MOST), key=lambda one: (one[1], -one[2]))
    for code, start, last, forbidden, certain in candidates:
        if start < end or len(code.text) > _LONGEST:
            continue
        program = _parsed(code, start, last, forbidden, certain)
        if program is not None:
            found.append(program)
            end = last
    return tuple(found)


_Read = tuple[_Code, int, int, str]  # the code, its start and end, characters that new code must not have
_Candidate = tuple[_Code, int, int, str, bool]  # and whether it is given to Python


def _candidates(text: str, kind: Kind) -> Iterator[_Candidate]:
    """(code, start, end, characters that new code must not have, whether it is given to Python)."""
    for found in itertools.islice(_OPTION.finditer(text), _MOST):
        if not _in_comment(text, found.start(), kind):
            before, listed = _before(text, found.start()), "," in found["list"]
            said = _RUNS_PYTHON.search(before) is not None
            if not (said or listed or _RUNS_SOMETHING.search(before)):
                continue
            read = _read_listed if listed else _read_argument
            for code in read(text, found.end()):
                yield (*code, said)
    if kind is Kind.YAML:
        for item in itertools.islice(_ITEM.finditer(text), _MOST):
            read = _read_listed if text[item.end()] in "\"'" else _read_plain
            for code in read(text, item.end()):
                yield (*code, False)
        for block in _BLOCK.finditer(text):
            if (body := _block_body(text, block)) is not None:
                yield (*body, False)
    if kind in (Kind.SHELL, Kind.DOCKER, Kind.YAML):
        for here in itertools.islice(_HERE.finditer(text), _MOST):
            if not _in_comment(text, here.start(), kind) and (document := _here_body(text, here)) is not None:
                yield document


def _before(text: str, at: int) -> str:
    """The words in front of a place that belong to its command: its line, and lines that go on with a backslash."""
    start = max(text.rfind("\n", 0, at) + 1, at - 500)
    while start > 1 and text[:start].rstrip("\r\n").endswith("\\") and at - start < 500:
        start = max(text.rfind("\n", 0, start - 1) + 1, at - 1_000)
    return re.split(r"[;|&`]|\$\(", text[start:at])[-1]


def _in_comment(text: str, at: int, kind: Kind) -> bool:
    start = text.rfind("\n", 0, at) + 1
    return is_comment(text[start : text.find("\n", start) % (len(text) + 1)], kind)


def _read_argument(text: str, at: int) -> Iterator[_Read]:
    """The argument of `-c` on a line for a shell: a word, or its first part, if a line for another shell ends there."""
    if text.startswith('\\"', at):
        yield from _read_nested(text, at)
        return
    for parts in (100, 1):
        code = _read_word(text, at, parts)
        if code is not None:
            yield code


def _read_word(text: str, at: int, parts: int) -> _Read | None:
    """One word of a shell, with its quotes taken off; `parts` of it at most are between quotes."""
    code, start, forbidden = _Code(), at, set()
    limit = min(len(text), at + _LONGEST)
    while at < limit and text[at] not in _END_OF_WORD and parts:
        char = text[at]
        parts -= char in "'\""
        if char == "'":
            stop = text.find("'", at + 1)
            if stop < 0:
                return None
            at += 1
            while at < stop:
                at = _fill(text, at, stop, code, _OF_MAKE) or _take(text, at, code)
            at = stop + 1
            forbidden |= {"'"}
        elif char == '"':
            at += 1
            while at < limit and text[at] != '"':
                if text[at] == "\\" and at + 1 < len(text):
                    at = _unescape(text, at, code)
                else:
                    at = _fill(text, at, limit, code, _FILLED) or _take(text, at, code)
            if at >= limit:
                return None
            at += 1
            forbidden |= set('"$`\\!')
        elif char == "\\" and at + 1 < len(text):
            if text[at + 1] != "\n":
                code.add(text[at + 1], at + 1)
            at += 2
        else:
            at = _fill(text, at, limit, code, _FILLED) or _take(text, at, code)
    return code, start, at, "".join(sorted(forbidden))


def _take(text: str, at: int, code: _Code) -> int:
    code.add(text[at], at)
    return at + 1


def _fill(text: str, at: int, stop: int, code: _Code, pattern: re.Pattern[str]) -> int:
    """Behind what is put in later at this place; 0 where nothing is."""
    if text[at] not in "$`":
        return 0
    found = pattern.match(text, at, stop)
    if found is None:
        return 0
    code.add_filled(len(found[0]))
    return found.end()


def _unescape(text: str, at: int, code: _Code) -> int:
    """Read a backslash between double quotes, or in a here-document: before these characters it goes."""
    if text[at + 1] in _ESCAPED:
        code.add(text[at + 1], at + 1)
        return at + 2
    end = re.compile(r"\\\r?\n").match(text, at)
    return end.end() if end is not None else _take(text, at, code)


def _read_nested(text: str, at: int) -> Iterator[_Read]:
    r"""Code between \" and \", in a string of the text around it."""
    close = text.find('\\"', at + 2)
    body = text[at + 2 : close]
    if close < 0 or "\\" in body or '"' in body or "\n" in body:
        return
    code, at = _Code(), at + 2
    while at < close:
        at = _fill(text, at, close, code, _FILLED) or _take(text, at, code)
    yield code, at - len(body), close + 2, "\"'\\$`!\n"


def _read_listed(text: str, at: int) -> Iterator[_Read]:
    """A string of JSON, YAML or TOML."""
    quote, code, start, at = text[at], _Code(), at, at + 1
    limit = min(len(text), at + _LONGEST)
    while at < limit:
        char = text[at]
        if char == "\\" and quote == '"' and at + 1 < limit:
            escaped = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/"}.get(text[at + 1])
            if escaped is None:
                return
            code.add(escaped, at + 1 if escaped in '"\\/' else None)
            at += 2
        elif char == quote and quote == "'" and text.startswith("''", at):
            code.add("'", at + 1)
            at += 2
        elif char == quote:
            yield code, start, at + 1, quote + "\\\n$"
            return
        elif char == "\n":
            return
        else:
            at = _fill(text, at, limit, code, _FILLED) or _take(text, at, code)


def _read_plain(text: str, at: int) -> Iterator[_Read]:
    """A word of YAML without quotes, up to the end of its line."""
    end = re.compile(r"[^\n]*?(?=[ \t]*(?:\r?\n|$|[ \t]#))").match(text, at)
    if end is None:
        return
    code, start = _Code(), at
    while at < end.end():
        at = _fill(text, at, end.end(), code, _FILLED) or _take(text, at, code)
    yield code, start, at, "#:\n"


def _block_body(text: str, block: re.Match[str]) -> _Read | None:
    """A block of YAML that imports something: `run: |` of a step with `shell: python`, a file in a ConfigMap."""
    start = block.end() + 1
    end = start
    for line in re.compile(r"[^\n]*(?:\n|\Z)").finditer(text, start):
        if line[0].strip() and len(line[0]) - len(line[0].lstrip(" \t")) <= len(block["indent"]):
            break
        end = line.end()
        if end >= len(text):
            break
    body = text[start:end]
    if not _IMPORTS_TORCH.search(body):
        return None
    code, at = _Code(), start
    while at < end:
        at = _fill(text, at, end, code, _OF_MAKE) or _take(text, at, code)
    return code, start, end, ""


def _here_body(text: str, here: re.Match[str]) -> _Candidate | None:
    """The lines of a here-document, without the one that ends it."""
    line = text.find("\n", here.end())
    start = line + 1
    if line < 0:
        return None
    close = re.compile(rf"^[ \t]*{re.escape(here['word'])}[ \t]*\r?$", re.MULTILINE).search(text, start)
    if close is None:
        return None
    end = close.start()
    plain = bool(here["quote"])
    code, at = _Code(), start
    while at < end:
        if not plain and text[at] == "\\" and at + 1 < end:
            at = _unescape(text, at, code)
        else:
            at = _fill(text, at, end, code, _OF_MAKE if plain else _FILLED) or _take(text, at, code)
    around = _before(text, here.start()) + text[here.end() : line]
    return code, start, end, "" if plain else "$`\\", _SAYS_PYTHON.search(around) is not None


def _parsed(code: _Code, start: int, end: int, forbidden: str, certain: bool) -> Program | None:
    """The program, with its indentation taken off; None where it is no Python."""
    text = "".join(code.text)
    if not _LOOKS_PYTHON.search(text) or not (certain or _IMPORTS.match(text.lstrip())):
        return None
    text, places, indent = _dedent(text, code.places)
    for filling in ("0", "_"):
        filled = text.replace("\0", filling)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes and the like are the script's own business
                ast.parse(filled)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return Program(filled, places, start, end, indent, frozenset(forbidden))
    return None


def _dedent(text: str, places: list[int | None]) -> tuple[str, list[int | None], str]:
    """The code without the indentation that all its lines have, which YAML or the shell script around it gave."""
    lines = text.splitlines(keepends=True)
    first_is_part = bool(lines) and bool(lines[0].strip())
    # `-c "import torch⏎    x()"`: the first line stands behind the quote, and has no indentation of its own.
    counted = [line for index, line in enumerate(lines) if line.strip() and not (index == 0 and line[0] not in " \t")]
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in counted]
    indent = min(indents, key=len) if indents else ""
    whole = not first_is_part or lines[0].startswith(indent) or not indent
    if not whole and not _is_blockless(lines[0]):
        return text, places, ""
    if not indent or not all(one.startswith(indent) for one in indents):
        return text, places, ""
    kept: list[int] = []
    at = 0
    for line in lines:
        skip = len(indent) if line.startswith(indent) else 0
        kept += range(at + skip, at + len(line))
        at += len(line)
    return "".join(text[index] for index in kept), [places[index] for index in kept], indent


def _is_blockless(line: str) -> bool:
    """Whether the first line opens no block, so that the lines below belong to its own level."""
    return not line.rstrip().endswith((":", "(", "[", "{", ",", "\\"))
