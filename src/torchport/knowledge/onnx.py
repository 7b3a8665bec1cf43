"""`onnx.toml` and `onnx_parsers.toml`: what ATC takes of ONNX."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Opsets:
    """The opsets that the ATC of a CANN takes, `first` to `last`, and who says so."""

    cann: str
    first: int
    last: int
    source: str


def find_opsets(cann: str | None = None) -> Opsets | None:
    """Those of this CANN ("8.1.RC1"), or of the newest; None for one that is older than what is known."""
    rows = [Opsets(**row) for row in _table("onnx")["opsets"]]
    if cann is None:
        return rows[-1]
    wanted = _version(cann)
    return next((row for row in reversed(rows) if _version(row.cann) <= wanted), None)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def find_precision_mode(operators: str) -> str | None:
    """The --precision_mode for chips with these operators; None where it is not known."""
    row = _table("onnx")["precision"].get(operators)
    return None if row is None else str(row["mode"])


@functools.cache
def load_parser_opsets() -> Mapping[str, frozenset[int]]:
    """Operators that CANN's parser has, each with its opsets."""
    found = {}
    for name, text in _table("onnx_parsers")["opsets"].items():
        runs = (run.partition("-") for run in text.split())
        found[name] = frozenset(n for low, _, high in runs for n in range(int(low), int(high or low) + 1))
    return found


def parsers_source() -> str:
    """Where `load_parser_opsets` is from."""
    return str(_table("onnx_parsers")["source"])


def find_replacement(operator: str) -> str:
    """What to do about an operator that is not taken; empty where nothing is known."""
    return str(_table("onnx")["replacements"].get(operator, ""))


@functools.cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))
