"""The blind set (tests/blind): its files follow their format, and each word of its scorer can be said."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "blind"))

import casefile

CASES = casefile.load()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("--- a.py\n  x\n", "a line outside"),
        ("=== one: why\n  x\n", "a line outside"),
        ("=== one: why\n", "has no file"),
        ("=== one (runs b.py): why\n--- a.py\n  x\n", "not the one that it runs"),
        ("=== one: why\n--- a.py\n- x\n", "becomes nothing"),
        ("=== one: why\n--- a.py\n- x\n+ x\n", "becomes itself"),
        ("=== one: why\n--- a.py\n  x\n+ y\n", "nothing that may become"),
        ("=== one: why\n--- a.py\n!\n", "nothing that may become"),
        ("=== one: why\n--- a.py\n* x\n", "no marker"),
        ("=== one: why\n--- a.py\n!!x\n", "no marker"),
    ],
)
def test_what_is_no_case_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(casefile.CaseError, match=complaint):
        list(casefile.read(text, "wrong"))


def test_a_case_is_read() -> None:
    text = "=== one (runs a.py -v): why\n--- a.py [crlf]\n  é\n- x\n+ y\n+!z\n!\n~ u\n--- b/c.yaml [utf-16]\n? w\n"
    (case,) = casefile.read(text, "kind")
    assert (case.name, case.about, case.category, case.runs) == ("one", "why", "kind", ("a.py", "-v"))
    script, settings = case.files
    assert script.data() == "é\r\nx\r\nu\r\n".encode() and settings.data() == "w\n".encode("utf-16")
    assert script.lines[1] == casefile.Line("x", "-", [("y", False), ("z", True)], True)


def test_the_set_is_large_enough() -> None:
    assert len(CASES) >= 200
    assert sum(bool(case.runs) for case in CASES) >= 100
    assert all(case.about for case in CASES)


def results(file: casefile.File) -> Iterator[str]:
    """The source, and what is expected first of each line."""
    yield file.data().decode(file.encoding)
    yield "".join((line.becomes[0][0] if line.becomes else line.text) + "\n" for line in file.lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sources_and_expectations_parse(case: casefile.Case) -> None:
    for file in case.files:
        for text in results(file):
            if file.path.endswith((".json", ".ipynb")):
                json.loads(text)
            elif file.path.endswith(".py"):
                if case.name == "python_two":
                    with pytest.raises(SyntaxError):
                        ast.parse(text)
                else:
                    ast.parse(text)
