"""Operators that the recorder itself calls, to measure a loss or a norm: whoever notes a run's operators is told."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_listeners: list[Callable[[], contextlib.AbstractContextManager[None]]] = []


def add_listener(quiet: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """From now on `quiet()` is entered around what is ours."""
    _listeners.append(quiet)


def remove_listener(quiet: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """The inverse of `add_listener`; nothing where it has been done."""
    if quiet in _listeners:
        _listeners.remove(quiet)


def silence_listeners() -> contextlib.AbstractContextManager[object]:
    """What is called in the block is ours."""
    if not _listeners:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    for listener in _listeners:
        stack.enter_context(listener())
    return stack


def silence_operators(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """`function` calls operators for the recorder alone."""

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        if not _listeners:
            return function(*args, **kwargs)
        with silence_listeners():
            return function(*args, **kwargs)

    return call


__all__ = ["add_listener", "remove_listener", "silence_listeners", "silence_operators"]
