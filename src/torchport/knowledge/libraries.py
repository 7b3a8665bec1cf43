"""`libraries.toml`: Python packages of the CUDA world and what they are on an NPU."""

from __future__ import annotations

import dataclasses
import enum
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources

# What the objects that a package makes answer to.
TORCH, MOVED = "torch", "to"
_SERVED = " `torchport run` brings a stand-in for it, so the script itself need not change."


class Support(enum.StrEnum):
    """Whether a package can be used on an NPU."""

    WORKS = "works"
    PORT = "port"
    REPLACE = "replace"
    UNSUPPORTED = "unsupported"


@dataclasses.dataclass(frozen=True, slots=True)
class Library:
    """One package by its import name; `uses` holds what is to be said of single functions of it.

    `knows_npu`: it looks for the NPU itself, so under `torchport run` it must see the NPU, not CUDA. `stand_in`:
    `torchport.standins` has one, which `note` then says. `objects`: what it makes is torch's ("torch"), or has cuda()
    and to() and no npu() ("to"); empty where it is not known. `monitors`: it only watches the GPU.
    """

    name: str
    status: Support
    note: str
    install: str
    link: str
    uses: Mapping[str, str]
    blocks: frozenset[str]  # those of `uses` without which the script cannot run
    knows_npu: bool
    stand_in: bool
    objects: str
    monitors: bool


@functools.cache
def load_libraries() -> Mapping[str, Library]:
    """All packages by import name. Raises ValueError for a row that breaks the schema in `libraries.toml`."""
    rows = tomllib.loads(resources.files(__package__).joinpath("libraries.toml").read_text("utf-8"))
    keys = {field.name for field in dataclasses.fields(Library)} - {"name"}
    for name, row in rows.items():
        if unknown := set(row) - keys:
            raise ValueError(f"libraries.toml: {name} has unknown keys {sorted(unknown)}")
        if stray := [use for use in row.get("uses", {}) if not use.startswith(f"{name}.")]:
            raise ValueError(f"libraries.toml: {stray} do not belong to {name}")
        if row.get("objects", TORCH) not in (TORCH, MOVED):
            raise ValueError(f"libraries.toml: {name} has objects {row['objects']!r}")
    return {
        name: Library(
            name,
            Support(row["status"]),
            row["note"] + (_SERVED if row.get("stand_in") else ""),
            row.get("install", ""),
            row.get("link", ""),
            row.get("uses", {}),
            frozenset(row.get("blocks", [])),
            row.get("knows_npu", False),
            row.get("stand_in", False),
            row.get("objects", ""),
            row.get("monitors", False),
        )
        for name, row in rows.items()
    }
