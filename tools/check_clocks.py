"""Refuse clocks, sleeps and short deadlines in tests: they fail on a busy machine.

    python tools/check_clocks.py

tests/clocks.toml lists the exceptions, each with the reason why no test's outcome depends on the machine's load. A key
is a file below tests/, or the file, "::", and the outermost function, class or assigned variable around the use:

    "unit/test_x.py::test_y" = "polls, without a deadline"

Checked: tests/*.py, tests/unit and tests/vnpu, without scripts that are written as users write them (`SCRIPTS`). The
other folders of tests/ hold campaigns. The syntax tree shows functions of `time`, `os.times`, the processor times of
`getrusage`, `datetime.now`, timers, alarms, `asyncio.sleep`, and a number below 300 as `timeout=` of a call or as the
argument of `.wait`, `.join`, `.result` or `.settimeout`. In string literals, which may be programs, the same words are
found by their text. Docstrings are left out. A deadline that is computed is not found.

Exit code 1 if a use is not listed, an entry has no reason, or an entry has no use.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

SHORT = 300  # seconds: half of pytest's own limit
CLOCKS = {
    "time": {
        *("sleep", "time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"),
        *("time_ns", "monotonic_ns", "perf_counter_ns", "process_time_ns", "thread_time_ns", "clock_gettime_ns"),
    },
    "os": {"times"},
    "asyncio": {"sleep", "wait_for", "timeout"},
    "threading": {"Timer"},
    "signal": {"setitimer", "alarm"},
    "datetime": {"now", "utcnow"},
}
FIELDS = {"ru_utime", "ru_stime"}
WAITING = {"wait", "join", "result", "settimeout"}
# Not tests, and not imported by one: scripts as users write them.
SCRIPTS = {"data", "injected", "scripts"}
ADVICE = {
    "clock": "count work (tests/unit/counting.py) or assert an order",
    "sleep": "wait for what has to happen (tests/waiting.py)",
    "deadline": "leave it to pytest's own timeout",
}
_MODULES = "|".join(CLOCKS)
_IN_TEXT = re.compile(
    rf"\b(?P<module>{_MODULES})\.(?P<name>\w+)\(|\b(?P<field>{'|'.join(sorted(FIELDS))})\b|"
    r"\btimeout=(?P<seconds>\d+(?:\.\d+)?)\b"
)
Use = tuple[int, str, str, str]


def uses(source: str) -> list[Use]:
    """Return line, place (function, class or variable of the module, "" for none), word and kind of each use."""
    tree = ast.parse(source)
    names, found = _imported(tree), set()
    for statement in tree.body:
        place = _place(statement)
        for node in ast.walk(statement):
            for word, kind in _of_node(node, names):
                found.add((getattr(node, "lineno", 0), place, word, kind))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documentation = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
            if documentation is not None:
                lines = range(documentation.lineno, (documentation.end_lineno or 0) + 1)
                found = {use for use in found if use[0] not in lines}
    return sorted(found)


def _place(statement: ast.stmt) -> str:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return statement.name
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return next((target.id for target in targets if isinstance(target, ast.Name)), "")


def _imported(tree: ast.AST) -> dict[str, str]:
    """Map each name to a module of CLOCKS, or to a function in one as "time.sleep"."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {name.asname or name.name: name.name for name in node.names if name.name in CLOCKS}
        elif isinstance(node, ast.ImportFrom) and node.module in CLOCKS:
            names |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return names


def _of_node(node: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        yield from _clock(_dotted(node, names))
    elif isinstance(node, ast.Call):
        yield from _deadline(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        for match in _IN_TEXT.finditer(node.value):
            if match["seconds"] is None:
                yield from _clock(match["field"] or f"{match['module']}.{match['name']}")
            elif float(match["seconds"]) < SHORT:
                yield match[0], "deadline"


def _dotted(node: ast.Attribute | ast.Name, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if node.attr in FIELDS:
        return node.attr
    inner = node.value
    before = _dotted(inner, names) if isinstance(inner, ast.Attribute | ast.Name) else ""
    return f"{before}.{node.attr}" if before else ""


def _clock(word: str) -> Iterator[tuple[str, str]]:
    module, _, name = word.partition(".")
    if word in FIELDS or name.rpartition(".")[2] in CLOCKS.get(module, ()):
        yield word, "sleep" if name in {"sleep", "Timer"} else "clock"


def _deadline(call: ast.Call) -> Iterator[tuple[str, str]]:
    for keyword in call.keywords:
        if keyword.arg == "timeout" and _is_short(keyword.value):
            yield f"timeout={ast.unparse(keyword.value)}", "deadline"
    if isinstance(call.func, ast.Attribute) and call.func.attr in WAITING and call.args and _is_short(call.args[0]):
        yield f".{call.func.attr}({ast.unparse(call.args[0])})", "deadline"


def _is_short(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Constant)
        and isinstance(value.value, int | float)
        and not isinstance(value.value, bool)
        and 0 < value.value < SHORT
    )


def checked(tests: Path) -> Iterator[Path]:
    """Yield the files that are checked, in order."""
    for pattern in ("*.py", "unit/**/*.py", "vnpu/**/*.py"):
        for path in sorted(tests.glob(pattern)):
            if SCRIPTS.isdisjoint(path.relative_to(tests).parts):
                yield path


def findings(tests: Path) -> list[str]:
    """Return a line for each use and each entry that is refused."""
    table = tests / "clocks.toml"
    listed: dict[str, object] = tomllib.loads(table.read_text()) if table.exists() else {}
    found = []
    used = set()
    for path in checked(tests):
        name = path.relative_to(tests).as_posix()
        for line, place, word, kind in uses(path.read_text()):
            key = f"{name}::{place}" if place else name
            if known := {name, key} & listed.keys():
                used |= known
            else:
                found.append(f'{path}:{line}: {word}: {ADVICE[kind]}, or say why not in {table}: "{key}" = "..."')
    for key, reason in listed.items():
        if not isinstance(reason, str) or not reason.strip():
            found.append(f'{table}: "{key}" has no reason: say why no test depends on the load')
        elif key not in used:
            found.append(f'{table}: "{key}" is not needed any more: remove the line')
    return found


def main() -> int:
    """Print all findings."""
    found = findings(Path("tests"))
    print("\n".join(found) if found else "no test depends on a clock")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
