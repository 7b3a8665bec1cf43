"""Plans a unity build: which sources of a library are compiled together, as one translation unit.

An object of libopapi spends most of its time on ATen: the precompiled header leaves templates that every object
instantiates again. Eight sources in one translation unit pay for that once.

A translation unit includes the headers of all its sources first, so no header sees a name of a source. Two sources
share a translation unit only if neither can see a private name of the other. A name is private if its source defines
it at namespace scope and no header declares it: a function in an unnamed namespace, a class, a macro. Two sources are
kept apart if a private name of one occurs in the text of the other, or if they differ in their `using` declarations
and directives. So no name is defined twice, and no call finds another overload than it finds alone. A source stays
alone if it defines in an unnamed namespace a name that a macro of a header uses, or if a comment in it begins with
`Compiled alone:`.

A source that was changed after the plan was made is compiled by itself, so that the next change of it costs one
object. A new plan is made when a quarter of the sources have changed.

    python csrc/unity.py FOLDER SOURCE...

writes the plan and the translation units to FOLDER and prints the files to compile, one a line.

    python csrc/unity.py BUILD

adds to BUILD/compile_commands.json, from which editors learn how a source is compiled, the sources of its units.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

CSRC = Path(__file__).parent
# Characters of source text in one translation unit: about eight of libopapi's sources. Larger units save little more
# and leave one core without work at the end.
UNIT = 60_000
# The functions that the macros of aclnn.h call, which csrc/opapi/aclnn/generate.py writes at build.
GENERATED = ("aten_dtype", "equal_dtypes", "generation", "numbers", "own", "promotable", "since", "taken")

_BLANKED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL
)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_INCLUDE = re.compile(r"^#include (?:<.*|\".*\.h\".*)", re.MULTILINE)
_MEMBER = re.compile(r'^#include "(.*\.cpp)"$', re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
# Not after `.`, `->` and `::`, where the name is looked up elsewhere.
_UNQUALIFIED = re.compile(r"(?<![\w.:>])[A-Za-z_]\w*|(?<=[^-]>)[A-Za-z_]\w*")
_TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[.*?\]\]\s*)?([A-Za-z_]\w*)")
_ALIAS = re.compile(r"^(?:template\s*<.*?>\s*)?(?:using|namespace)\s+([A-Za-z_]\w*)\s*=", re.DOTALL)


class Scope:
    """Names that a source brings into namespace scope."""

    def __init__(self, text: str) -> None:
        text = _code(text)
        self.unnamed = {name for name, _ in _DEFINE.findall(text)}  # in unnamed namespaces, `static`, and macros
        self.named = set[str]()  # all others
        self.used = set[str]()  # `using` declarations and directives, as they are written
        # Of the braces that are open: "body", or whether they are of an "unnamed" namespace or another ("").
        self._braces: list[str] = []
        statement = ""
        for piece in re.split(r"([{};])", _DIRECTIVE.sub(" ", text)):
            if piece not in ("{", "}", ";"):
                statement += piece
                continue
            if "body" not in self._braces and piece != "}":
                self._take(statement.strip(), piece)
            elif piece == "{":
                self._braces.append("body")
            if piece == "}" and self._braces:
                self._braces.pop()
            statement = ""

    def _take(self, statement: str, end: str) -> None:
        opened = re.search(r"\b(?:namespace\b([^(=]*)|extern)$", statement)
        if end == "{" and opened:
            unnamed = opened.group(1) == "" or "unnamed" in self._braces
            self._braces.append("unnamed" if unnamed else "")
            return
        if end == "{":
            self._braces.append("body")
        if statement.startswith("using ") and "=" not in statement:
            self.used.add(" ".join(statement.split()))
            return
        private = "unnamed" in self._braces or re.match(r"static\b|using\b|namespace\b", statement)
        (self.unnamed if private else self.named).update(_defined(statement))


def _code(text: str) -> str:
    """`text` with its comments and literals blanked out."""
    return _BLANKED.sub(" ", text)


def _defined(statement: str) -> set[str]:
    if found := _ALIAS.search(statement):
        return {found.group(1)}
    # The name of a function or a variable is the last word before its parameters, its initializer or its end.
    head = re.split(r"[(=]|\[(?!\[)", statement, maxsplit=1)[0]
    return {*_TYPE.findall(statement), *_WORD.findall(head)[-1:]} - {"static_assert", "void"}


def kept_apart(sources: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, set[str]]:
    """The sources with which each source must not share a translation unit. Takes the text of all sources by their
    names, and of all headers by the names by which they are included."""
    scopes = {name: Scope(text) for name, text in [*headers.items(), *sources.items()]}
    declared = {word for text in headers.values() for word in _WORD.findall(_code(text))}
    expanded = set(GENERATED)
    for text in map(_code, headers.values()):
        expanded.update(word for _, body in _DEFINE.findall(text) for word in _UNQUALIFIED.findall(body))
    private = {name: scopes[name].unnamed | (scopes[name].named - declared) for name in sources}
    words = {name: set(_UNQUALIFIED.findall(_code(text))) for name, text in sources.items()}
    # Names that a source sees in the headers that it includes, and by them in others.
    texts = {**headers, **sources}
    seen = {name: set[str]().union(*(scopes[one].named for one in _included(name, texts))) for name in sources}
    apart: dict[str, set[str]] = {name: set() for name in sources}
    for one in sources:
        alone = scopes[one].unnamed & expanded or "// Compiled alone:" in sources[one]
        for other in sources.keys() - {one}:
            new = words[other] | (seen[other] - seen[one])
            if alone or private[one] & new or scopes[one].used != scopes[other].used:
                apart[one].add(other)
                apart[other].add(one)
    return apart


def _included(name: str, texts: Mapping[str, str]) -> set[str]:
    """The headers in csrc/ that a file includes, itself or through others."""
    found, todo = set[str](), [name]
    while todo:
        for header in re.findall(r'^#include "(.*)"', texts[todo.pop()], re.MULTILINE):
            if header in texts and header not in found:
                found.add(header)
                todo.append(header)
    return found


def grouped(sources: Mapping[str, str], headers: Mapping[str, str], unit: int = UNIT) -> list[list[str]]:
    """The sources of each translation unit."""
    apart = kept_apart(sources, headers)
    units: list[list[str]] = []

    def size(members: list[str]) -> int:
        return sum(len(sources[name]) for name in members)

    # The most restricted first; each goes to the fullest unit that takes it.
    for name in sorted(sources, key=lambda name: (-len(apart[name]), name)):
        fitting = [one for one in units if not apart[name] & set(one) and size(one) + len(sources[name]) <= unit]
        if fitting:
            max(fitting, key=size).append(name)
        else:
            units.append([name])
    return [sorted(members) for members in units]


def planned(folder: Path, sources: list[Path]) -> list[Path]:
    """The files to compile: sources, and translation units written to `folder`."""
    plan = folder / "plan.json"
    units: list[list[str]] = json.loads(plan.read_text(encoding="utf-8")) if plan.exists() else []
    known = {name for unit in units for name in unit}
    changed = {str(path) for path in sources if str(path) not in known or _newer(path, plan)}
    if len(changed) > len(sources) // 4:
        headers = {str(path.relative_to(CSRC)): path.read_text(encoding="utf-8") for path in CSRC.rglob("*.h")}
        units = grouped({str(path): path.read_text(encoding="utf-8") for path in sources}, headers)
        changed = set()
        folder.mkdir(parents=True, exist_ok=True)
        plan.write_text(json.dumps(units, indent=0), encoding="utf-8")
    there = {str(path) for path in sources} - changed
    files = [Path(name) for name in sorted(changed)]
    for at, unit in enumerate(units):
        if members := [name for name in unit if name in there]:
            files.append(Path(members[0]) if len(members) == 1 else _written(folder / f"unit{at:02}.cpp", members))
    return files


def _newer(path: Path, plan: Path) -> bool:
    return path.stat().st_mtime_ns > plan.stat().st_mtime_ns


def _written(unit: Path, members: list[str]) -> Path:
    """Write the translation unit, unless it is there already: its time decides whether it is compiled."""
    includes = dict.fromkeys(line for name in members for line in _INCLUDE.findall(Path(name).read_text("utf-8")))
    lines = ["// Generated by csrc/unity.py.", *includes, *(f'#include "{name}"' for name in members)]
    text = "\n".join(lines) + "\n"
    if not unit.exists() or unit.read_text(encoding="utf-8") != text:
        unit.write_text(text, encoding="utf-8")
    return unit


def members(unit: Path) -> list[str]:
    """The sources in a translation unit; none if the file is a source itself."""
    return _MEMBER.findall(unit.read_text(encoding="utf-8")) if unit.parent.parent.name == "unity" else []


def complete(commands: Path) -> None:
    """Add an entry for each source that a translation unit includes."""
    rows = json.loads(commands.read_text(encoding="utf-8"))
    present = {row["file"] for row in rows}
    rows += [
        row | {"file": source, "command": row["command"].replace(row["file"], source)}
        for row in list(rows)
        for source in members(Path(row["file"]))
        if source not in present
    ]
    commands.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    if sources := [Path(word) for word in sys.argv[2:]]:
        print("\n".join(map(str, planned(Path(sys.argv[1]), sources))))
    else:
        complete(Path(sys.argv[1]) / "compile_commands.json")
