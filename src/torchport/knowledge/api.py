"""The interface table `api.toml`: CUDA names of torch and what they are on the NPU."""

from __future__ import annotations

import dataclasses
import enum
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any


class Status(enum.StrEnum):
    """What becomes of a name."""

    SAME = "same"  # exists on the NPU with the same meaning
    REVIEW = "review"  # exists and differs
    MISSING = "missing"  # does not exist
    KEEP = "keep"  # harmless, left as it is


@dataclasses.dataclass(frozen=True, slots=True)
class Api:
    """One row: the full CUDA `name`, its `npu` and `agnostic` names, and a `note` for people."""

    name: str
    npu: str
    agnostic: str
    status: Status
    note: str
    module: str = ""  # the prefix whose names this submodule repeats
    listed: bool = False  # below this name only those with a row are known
    only_with: str = ""  # the row applies to a file only if this name is used in it
    # What keyword arguments are called on the NPU; empty for one that is not there.
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    positions: int | None = None  # this many positional arguments mean the same
    fills: bool = False  # the arguments after the first fill its text, and the NPU's function wants it filled


@functools.cache
def load_apis() -> Mapping[str, Api]:
    """All rows by full CUDA name. Raises ValueError for a row that breaks the schema in `api.toml`."""
    sections = tomllib.loads(resources.files(__package__).joinpath("api.toml").read_text("utf-8"))
    table: dict[str, Api] = {}
    for prefix, rows in sections.items():
        npu, agnostic, only_with = rows.pop("_npu"), rows.pop("_agnostic"), rows.pop("_only_with", "")
        for short, row in rows.items():
            name = f"{prefix}.{short}"
            if name in table:
                raise ValueError(f"api.toml has two rows for {name}")
            table[name] = dataclasses.replace(_row(name, short, npu, agnostic, row), only_with=only_with)
    return table


_CALLS = ("arguments", "positions", "fills")


def _row(name: str, short: str, npu: str, agnostic: str, row: Mapping[str, Any]) -> Api:
    if unknown := set(row) - {"npu", "agnostic", "review", "missing", "keep", "module", "listed", *_CALLS}:
        raise ValueError(f"api.toml: {name} has unknown keys {sorted(unknown)}")
    notes = [key for key in ("review", "missing", "keep") if key in row]
    if len(notes) > 1:
        raise ValueError(f"api.toml: {name} says {' and '.join(notes)}")
    return Api(
        name,
        row.get("npu", f"{npu}.{short}"),
        row.get("agnostic", f"{agnostic}.{short}"),
        Status(notes[0]) if notes else Status.SAME,
        row[notes[0]] if notes else "",
        row.get("module", ""),
        row.get("listed", False),
        arguments=row.get("arguments", {}),
        positions=row.get("positions"),
        fills=row.get("fills", False),
    )


@functools.cache
def find_api(name: str) -> tuple[Api, str] | None:
    """The row for a dotted name and what follows it ("torch.cuda.Stream.query" gives the row of Stream and "query").

    A name in a submodule that only repeats another (`torch.cuda.memory.empty_cache`) gives a row of its own with the
    submodule kept. None for what is no CUDA name, and for CUDA names the table does not know.
    """
    table = load_apis()
    words = name.split(".")
    for length in range(len(words), 1, -1):
        row = table.get(".".join(words[:length]))
        if row is None:
            continue
        rest = ".".join(words[length:])
        if row.module and rest:
            inner = find_api(f"{row.module}.{rest}")
            if inner is None or inner[0].name == row.module:
                return None
            return _in_submodule(row, inner[0]), inner[1]
        if rest and row.listed:
            return None
        return row, rest
    return None


def _in_submodule(module: Api, row: Api) -> Api:
    tail = row.name.removeprefix(module.module)
    submodule = module.name.removeprefix(module.module)
    if not row.npu.endswith(tail) or row.npu.endswith(f"{submodule}{tail}"):  # it is there in the submodule alone
        return row
    return dataclasses.replace(row, name=f"{module.name}{tail}", npu=f"{row.npu.removesuffix(tail)}{submodule}{tail}")
