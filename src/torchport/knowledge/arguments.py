"""`arguments.toml`: which arguments are devices or communication backends."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """Where values of one meaning go: keywords, positions of functions and of methods, telling names.

    `factories` and `movers` are what run-time patches wrap, by the dotted name of the owner.
    """

    name: str
    keywords: frozenset[str]
    names: re.Pattern[str]
    positions: Mapping[str, tuple[int | str, ...]]
    methods: Mapping[str, tuple[int, ...]]
    factories: Mapping[str, tuple[str, ...]]
    movers: Mapping[str, tuple[str, ...]]


@functools.cache
def load_role(name: str) -> Role:
    """The role "device" or "backend"."""
    row = tomllib.loads(resources.files(__package__).joinpath("arguments.toml").read_text("utf-8"))[name]
    return Role(
        name,
        frozenset(row["keywords"]),
        re.compile(row["names"]),
        {key: tuple(value) for key, value in row["positions"].items()},
        {key: tuple(value) for key, value in row["methods"].items()},
        {key: tuple(value) for key, value in row.get("factories", {}).items()},
        {key: tuple(value) for key, value in row.get("movers", {}).items()},
    )
