"""Patches of functions that a table names."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchport.patches import Patches


def wrap_if_present(patches: Patches, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """`patches.wrap` where there is such a name: tables name what any supported torch has, and none has all."""
    if hasattr(owner, name):
        patches.wrap(owner, name, make)


def wrap_all(patches: Patches, table: Mapping[str, Iterable[str]], make: Callable[[Any], Any]) -> None:
    """Wrap each function of a table {dotted name of the owner: names}."""
    for owner, names in table.items():
        for name in names:
            wrap_if_present(patches, pkgutil.resolve_name(owner), name, make)


def set_fixed_answers(patches: Patches, owner: Any, answers: Mapping[str, Any]) -> None:
    """Make functions of `owner` give one fixed answer, whatever they are asked."""

    def always(value: Any) -> Callable[[Any], Any]:
        return lambda original: lambda *args, **kwargs: value

    for name, value in answers.items():
        wrap_if_present(patches, owner, name, always(value))


def replace_functions(patches: Patches, owner: Any, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Replace functions that `owner` has, each by a wrapper: what `wrap` writes on it must not stay on the function."""

    def wrapper(function: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda original: lambda *args, **kwargs: function(*args, **kwargs)

    for name, function in functions.items():
        wrap_if_present(patches, owner, name, wrapper(function))
