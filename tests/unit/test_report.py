"""Findings as terminal text."""

from __future__ import annotations

import io

import pytest

from torchport.findings import Edit, Finding, Location, Safety, Severity
from torchport.report import render
from torchport.report.terminal import use_color

PLACE = Location("a.py", 3, 5, 3, 9)


def finding(**changes: object) -> Finding:
    values = {
        "code": "TP101",
        "severity": Severity.ERROR,
        "safety": Safety.REPORT,
        "location": PLACE,
        "message": "m",
    }
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def test_nothing() -> None:
    assert render([], color=False) == ""


def test_layout() -> None:
    text = render([finding(message="What it says.", hint="What to do.")], color=False, width=80)
    assert (
        text == "a.py\n       3:5  error    TP101  What it says.\n                            What to do.\n"
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "error"),
        ({"severity": Severity.WARNING}, "warning"),
        ({"fix": (Edit(0, 0, b""),), "safety": Safety.SAFE}, "done"),
        ({"fix": (Edit(0, 0, b""),), "safety": Safety.REVIEW}, "review"),
    ],
)
def test_words(changes: dict[str, object], word: str) -> None:
    assert f" {word} " in render([finding(**changes)], color=False)


def test_long_messages_wrap() -> None:
    lines = render([finding(message="word " * 60)], color=False, width=80).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80


def test_hostile_text_stays_text() -> None:
    place = Location("\x1b]0;title\x07.py", 1, 1, 1, 1)
    text = render([finding(location=place, message="\x1b[2J\r\n‮")], color=False)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\\x1b[2J" in text


def test_color_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert use_color(Terminal())
    assert not use_color(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_color(Terminal())
    assert "\x1b[31m" in render([finding()], color=True)
