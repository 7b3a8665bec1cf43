"""`codes.toml`: codes of findings that no rule stands behind."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """One code: a `title`, `why` it matters for the port and what to do `next`."""

    code: str
    title: str
    why: str
    next: str


@functools.cache
def load_codes() -> Mapping[str, Code]:
    """All codes of the file. Raises ValueError for a row that breaks the schema in `codes.toml`."""
    rows = tomllib.loads(resources.files(__package__).joinpath("codes.toml").read_text("utf-8"))
    for code, row in rows.items():
        if set(row) != {"title", "why", "next"}:
            raise ValueError(f"codes.toml: {code} has keys {sorted(row)}")
    return {code: Code(code, **row) for code, row in rows.items()}
