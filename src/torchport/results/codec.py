"""Frozen dataclasses to JSON values and back, by the types of their fields.

A field whose metadata has `OMITTED` is left out of the JSON while it is None: it is absent where there is nothing to
say. Reading ignores keys that are not known, as a later torchport may write more, and takes a field's default where a
key is missing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")
OMITTED = {"omitted while None": True}


def to_json(value: Any, not_finite: Callable[[float], object] = str) -> Any:
    """The value as JSON values: dataclasses as objects, sequences as lists, keys as text.

    JSON has no word for a float that is not finite; `not_finite` gives the value that stands for it, by default the
    text "nan", "inf" or "-inf", which `from_json` reads back.
    """
    if isinstance(value, str | int):  # nearly all; asked first, since the abstract types below are slow to ask
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else not_finite(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name), not_finite)
            for field in dataclasses.fields(value)
            if not (field.metadata.keys() & OMITTED.keys()) or getattr(value, field.name) is not None
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(item, not_finite) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item, not_finite) for item in value]
    return value


def from_json(kind: type[_T], value: object, place: str = "") -> _T:
    """The inverse of `to_json` for the dataclass `kind`.

    Raises TypeError for a value that does not fit, with its place: `runs.npu.steps is 'x', which is no int`.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{place or kind.__name__} is {value!r:.80}, which is no object")
    given = {}
    for name, hint, needed in _fields(kind):  # type: ignore[arg-type]  # classes have hashes
        inside = f"{place}.{name}" if place else name
        if name in value:
            given[name] = _read(hint, value[name], inside)
        elif needed:
            raise TypeError(f"{inside} is missing")
    return kind(**given)


@functools.cache
def _fields(kind: type[Any]) -> list[tuple[str, Any, bool]]:
    """The name and type of each field, and whether it has no default."""
    hints = typing.get_type_hints(kind)
    return [
        (
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    ]


def _read(hint: Any, value: Any, place: str) -> Any:
    if hint is Any or hint is object:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, value, place)
    if origin is tuple:
        if isinstance(value, Sequence) and not isinstance(value, str):
            kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
            if len(kinds) == len(value):
                pairs = enumerate(zip(kinds, value, strict=True))
                return tuple(_read(kind, item, f"{place}[{number}]") for number, (kind, item) in pairs)
    elif origin is not None and issubclass(origin, Mapping):
        if isinstance(value, Mapping):
            return {key: _read(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    elif dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type[Any], hint), value, place)
    elif hint is float:
        return _read_float(value, place)
    elif isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise TypeError(f"{place} is {value!r:.80}, which is no {getattr(hint, '__name__', hint)}")


def _read_float(value: Any, place: str) -> float:
    if value in ("nan", "inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool)):
        return float(value)
    raise TypeError(f"{place} is {value!r:.80}, which is no number")


def _read_union(members: tuple[Any, ...], value: Any, place: str) -> Any:
    if value is None and type(None) in members:
        return None
    others = [member for member in members if member is not type(None)]
    for member in others[:-1]:
        try:
            return _read(member, value, place)
        except TypeError:
            continue
    return _read(others[-1], value, place)
