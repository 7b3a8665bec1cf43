"""`knowledge/faults.toml`: what can go wrong on the virtual NPU, and in which codes and words it is told."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

FACES = ("runtime", "operator", "collective")


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a function of one part of the interface answers: `code` is the number, `name` CANN's name for it."""

    code: int
    name: str
    report: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault (csrc/device/fault.h): its answers by face, what it means `here` and on `hardware`."""

    name: str
    answers: Mapping[str, Answer]
    here: str
    hardware: str
    source: str


@functools.cache
def load_fault_kinds() -> tuple[Kind, ...]:
    """All kinds of the file. Raises ValueError for a table that breaks the schema in `faults.toml`."""
    return parse_fault_kinds(
        tomllib.loads(resources.files("torchport.knowledge").joinpath("faults.toml").read_text("utf-8"))
    )


def parse_fault_kinds(table: Mapping[str, Any]) -> tuple[Kind, ...]:
    """The kinds of a parsed file; see `load_fault_kinds`."""
    codes, defaults = table["codes"], table["defaults"]
    found = []
    for name, row in table.items():
        if name in ("codes", "defaults"):
            continue
        if not {"runtime", "here", "hardware", "source"} <= set(row) <= {*FACES, "here", "hardware", "source"}:
            raise ValueError(f"faults.toml: {name} has keys {sorted(row)}")
        answers = {}
        for face in FACES:
            code, report, text = row.get(face) or defaults[face]
            if code not in codes:
                raise ValueError(f"faults.toml: {name}.{face} names {code}, which `codes` does not have")
            answers[face] = Answer(codes[code], code, report, text)
        found.append(Kind(name, answers, row["here"], row["hardware"], row["source"]))
    return tuple(found)
