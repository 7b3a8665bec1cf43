"""`environment.toml`: environment variables of CUDA and NCCL and their NPU counterparts."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its `npu` name, empty where there is none, and a `note` on what to check or do instead."""

    name: str
    npu: str
    note: str


@functools.cache
def variables() -> Mapping[str, Variable]:
    """All variables by CUDA name. Raises ValueError for a row that breaks the schema in `environment.toml`."""
    rows = tomllib.loads(resources.files(__package__).joinpath("environment.toml").read_text("utf-8"))
    for name, row in rows.items():
        if not set(row) <= {"npu", "review", "missing"} or ("npu" in row) == ("missing" in row):
            raise ValueError(f"environment.toml: the row {name} has keys {sorted(row)}")
    return {
        name: Variable(name, row.get("npu", ""), row.get("review") or row.get("missing", ""))
        for name, row in rows.items()
    }
