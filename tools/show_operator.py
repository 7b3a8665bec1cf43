"""Show the C++ that a macro makes of an operator's line: show_operator.py NAME (`make show OP=aclnnAdd` or `OP=cumsum`)

Prints where the line is, what the tables say of the operator, and the C++ that the compiler sees in the line's place:
the preprocessor's output, cut out and formatted. Exit code 2 for a name that no table has, with names that are near.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OPAPI, BUILD = ROOT / "csrc/opapi", ROOT / "build/release"
sys.path.insert(0, str(OPAPI / "aclnn"))

import check_rows  # noqa: E402
import signatures  # noqa: E402

MARKER = re.compile(r'# (\d+) "([^"]*)"')


def show(name: str) -> str:
    """All that is known of the operator, as C++. Raises LookupError for an unknown name."""
    tables = OPAPI / "aclnn"
    known = signatures.of_all(tables)
    unexported = tomllib.loads((tables / "unexported.toml").read_text(encoding="utf-8"))
    elsewhere = tomllib.loads((tables / "elsewhere.toml").read_text(encoding="utf-8"))
    if name not in known and name not in unexported:
        callers = called_for(name, known)
        if len(callers) == 1:
            return show(*callers)
        near = difflib.get_close_matches(name, {*known, *unexported}, 5, 0.7)
        raise LookupError(
            f"{name} is in none of the tables of {tables.relative_to(ROOT)}."
            + (f" torch_npu calls {', '.join(callers)} for functions with this name." if callers else "")
            + (f" Near: {', '.join(near)}." if near and not callers else "")
        )
    place = find(name)
    row = known.get(name, {"torch": [], "params": None})
    head = [f"{name}: {state(place, unexported.get(name), elsewhere.get(name))}"]
    if row["torch"]:
        head.append(f"torch_npu calls it for {', '.join(row['torch'])}")
    if row["params"] is not None:
        params = (f"{kind} {param} ({way})" for kind, param, way in row["params"])
        head.append(f"parameters: {', '.join(params)}")
        head += checked(name, tables, known)
    head = [part for each in head for part in textwrap.wrap(each, 117, subsequent_indent="    ")]
    if place is None:
        return comment(head)
    path, first, last = place
    text = path.read_text(encoding="utf-8").splitlines()[first - 1 : last]
    return comment([*head, "", *text, "", "is for the compiler:"]) + "\n" + expansion(path, first, last) + "\n"


def called_for(name: str, known: dict[str, Any]) -> list[str]:
    """The operators that torch_npu calls for the function `name` of torch, or else for those with it in their names."""
    functions = {
        operator: [each.split("::")[-1].split(".")[0] for each in row["torch"]] for operator, row in known.items()
    }
    exact = [operator for operator, torch in functions.items() if name in torch]
    return exact or [operator for operator, torch in functions.items() if any(name in each for each in torch)]


def checked(name: str, tables: Path, known: dict[str, Any]) -> Iterator[str]:
    """What the first phase checks on Ascend 910B before anything else."""
    row = check_rows.rows(tables, known).get(name)
    if row is None:
        yield "checks: not read from CANN's sources"
        return
    yield f"checks, from {row.evidence}:" + ("" if row.parameters or row.same else " none")
    for parameter, limits in row.parameters.items():
        taken = limits["910B"]
        dtypes = "any dtype" if taken.dtypes is None else " ".join(taken.dtypes) or "refused"
        most = f", at most {taken.max_rank} dimensions" if taken.max_rank else ""
        yield f"{parameter}: {dtypes}{most} ({taken.evidence or 'not known'})"
    for a, b in row.same:
        yield f"{a} and {b} have one dtype"
    for a, b in row.promotable:
        yield f"{a} and {b} have a common dtype"


def state(
    place: tuple[Path, int, int] | None, unexported: dict[str, str] | None, elsewhere: dict[str, str] | None
) -> str:
    """Whether the virtual NPU has the operator, and where."""
    if elsewhere:
        return f"CANN has it for {elsewhere['chips']} only. {elsewhere['source']}"
    if place is None:
        return f"not exported. {unexported['reason']}" if unexported else "not exported"
    path, first, _ = place
    if path.is_relative_to(OPAPI):
        return f"implemented in {path.relative_to(ROOT)}:{first}"
    return "a gap: no line in csrc/opapi; its entry points answer that the virtual NPU does not implement it"


def find(name: str) -> tuple[Path, int, int] | None:
    """The file of the operator's line, the line's number and that of its last line."""
    for path in [*sorted(OPAPI.glob("*/*.cpp")), BUILD / "generated/gaps.cpp"]:
        text = path.read_text(encoding="utf-8")
        if found := re.search(rf"^[A-Z][A-Z0-9_]*\(\s*{name}\b", text, re.MULTILINE):
            first = text.count("\n", 0, found.start()) + 1
            return path, first, first + text.count("\n", found.start(), closing(text, found.start()))
    return None


def closing(text: str, start: int) -> int:
    """Where the first parenthesis behind `start` is closed."""
    depth = 0
    for found in re.compile(r'"(?:\\.|[^"\\])*"|//.*|[()]').finditer(text, start):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if found[0] == ")" and depth == 0:
            return found.start()
    return len(text)


def expansion(path: Path, first: int, last: int) -> str:
    """Lines `first` to `last` of the file after the preprocessor, formatted. Raises CalledProcessError."""
    source, number, lines = "", 0, []
    for line in preprocessed(path).splitlines():
        if found := MARKER.match(line):
            number, source = int(found[1]), found[2]
            continue
        if Path(source) == path and first <= number <= last:
            lines.append(line)
        number += 1
    code = "\n".join(line for line in lines if line.strip())
    return output([tool("clang-format"), f"--assume-filename={path}"], given=code)


def preprocessed(path: Path) -> str:
    """The file as the compiler sees it, by its own command in the build.

    Without the precompiled header, which may be older than what it holds: the files include what they need.
    """
    command = compile_command(path)
    at = command.index("-include")
    return output([*command[:at], *command[at + 2 :], "-E", str(path)])


def compile_command(path: Path) -> list[str]:
    """How the build compiles the file, without what it reads and writes."""
    rows: list[dict[str, Any]] = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    words = shlex.split(next(row["command"] for row in rows if Path(row["file"]) == path))
    start = next(i for i, word in enumerate(words) if word.startswith("-D")) - 1  # behind ccache
    return words[start : words.index("-o")]


def tool(name: str) -> str:
    """A program beside this Python."""
    return str(Path(sys.executable).parent / name)


def output(command: list[str], given: str = "") -> str:
    """What the command prints, run in the build's folder. Raises CalledProcessError."""
    result = subprocess.run(command, input=given, cwd=BUILD, capture_output=True, text=True, check=True)
    return str(result.stdout)


def comment(lines: list[str]) -> str:
    """The lines as a comment of C++."""
    return "".join(f"// {line}".rstrip() + "\n" for line in lines)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: make show OP=aclnnAdd", file=sys.stderr)
        return 2
    if not (BUILD / "build.ninja").exists():
        print(f"{BUILD.relative_to(ROOT)} is not there: run `make build` first.", file=sys.stderr)
        return 2
    try:
        output([tool("ninja"), "generated/aclnn.h"])
        print(show(arguments[0]), end="")
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(error.stdout + error.stderr, end="", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
