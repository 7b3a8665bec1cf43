"""How much work a function does, in counts that are the same on every machine and under every load."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

# Methods that look at an end of a text only, or go on from a place to the next hit.
_CHEAP = frozenset({"startswith", "endswith", "find", "rfind", "index", "rindex", "append", "pop"})


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """`lines` of Python that were executed, each as often as it was; `characters` of the texts (`str`, `bytes`) whose
    methods were called, each as often as one was: most of these methods read the text from end to end.

    Work in C that is no method of a text, such as a slice or the search of a regular expression, is in neither.
    """

    lines: int
    characters: int


def work(function: Callable[[], Any]) -> Work:
    """The work of one call of `function` in this thread; caches have to be filled before by a call without a count."""
    lines = characters = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal characters
        if event == "c_call":
            text = getattr(argument, "__self__", None)
            if isinstance(text, str | bytes | bytearray) and argument.__name__ not in _CHEAP:
                characters += len(text)

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(on_line)
    sys.setprofile(on_call)
    try:
        function()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    return Work(lines, characters)


def grows_with(small: Callable[[], Any], large: Callable[[], Any], times: float) -> bool:
    """Whether `large`, the same with `times` as much to do as `small`, does that many times the work: a quarter more is
    granted, and the square of it is far beyond."""
    small(), large()
    one, many = work(small), work(large)
    return many.lines <= 1.25 * times * one.lines and many.characters <= 1.25 * times * one.characters + 10_000
