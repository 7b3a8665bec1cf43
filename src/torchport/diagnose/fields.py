"""Facts in the lines around a cause, such as the kernel, the device, and what CANN itself guesses: `fields.toml`."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources

GUESSES = ("reason", "guess", "advice")  # CANN's own words, which are quoted and never believed
_KEYS = {"words", "pattern", "says", "fix", "sample", "value", "source"}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of `fields.toml`; `fix` is "" where the value needs no words."""

    name: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    says: str
    fix: str


@functools.cache
def load_fields() -> Mapping[str, Field]:
    """All fields by name. Raises ValueError for one that breaks the schema in `fields.toml`."""
    text = resources.files("torchport.knowledge").joinpath("fields.toml").read_text("utf-8")
    found = {}
    for name, row in tomllib.loads(text).items():
        if not _KEYS - {"fix"} <= set(row) <= _KEYS or re.compile(row["pattern"]).groups != 1:
            raise ValueError(f"fields.toml: {name} has keys {sorted(row)}, or not one group")
        found[name] = Field(name, tuple(row["words"]), re.compile(row["pattern"]), row["says"], row.get("fix", ""))
    return found


def extract_fields(lines: Iterable[str]) -> dict[str, str]:
    """The first value of each field in these lines."""
    found: dict[str, str] = {}
    for line in lines:
        for field in load_fields().values():
            if field.name in found or not any(word in line for word in field.words):
                continue
            if match := field.pattern.search(line):
                found[field.name] = match.group(1).strip()
    if found.get("operator") == found.get("interface"):
        found.pop("interface", None)
    return found
