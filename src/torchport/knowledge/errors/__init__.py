"""What lines of a log mean: one TOML file per family, one table per row.

    words     texts of which one stands in the line, as they are written (no pattern)
    pattern   a regular expression that the line has to match too; nothing in it repeats without a bound, so that it
              takes linear time on any text
    role      see `Role`; "cause" where it is missing
    owner     whose fault it is, see `Owner`; needed for causes, codes and exceptions
    unsure    true where the line does not tell which of several things was the cause; a cause with "or", "else" or
              "mostly" between them says so itself
    cause     what has happened and why, for someone who has never seen the line
    fix       what to do about it
    next      a command that shows more, or does it; "" where there is nothing to do
    samples   lines that match this row and no other, as different releases and libraries word it
    source    where cause and fix are known from

`answers` is the other side: the codes and words in which the virtual NPU itself tells what has failed.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

_NEEDED = {"words", "cause", "fix", "next", "samples", "source"}


# Words of a cause that names several things.
_ALTERNATIVES = re.compile(r", or (?!a newer)|\b(?:else|mostly|most often|often|perhaps)\b|: .{1,200} or ")


class Role(enum.StrEnum):
    """What a line says about the failure, in the order in which one explains another."""

    CAUSE = "cause"  # this is what went wrong
    CODE = "code"  # a general code: a line beside it may say what it means here
    SCRIPT = "script"  # the script raised an exception that no other row knows
    OUTCOME = "outcome"  # how a process ended, seen from outside: something has made it end so
    PEER = "peer"  # another rank failed or is late; on its own it is all that is known
    EFFECT = "effect"  # follows from an error that stands elsewhere
    NOTICE = "notice"  # looks like an error and is none


class Owner(enum.StrEnum):
    """Whose part of the stack has to be changed for the failure to go away."""

    SCRIPT = "script"  # the user's own code, its arguments and its configuration
    LAUNCHER = "launcher"  # how processes are started: torchrun, ray, schedulers, variables of ranks
    LIBRARY = "library"  # what the script imports, with torch, MindSpore and extensions
    TORCH_NPU = "torch_npu"
    CANN = "CANN"  # runtime, operators, compilers, HCCL
    DRIVER = "driver"  # with the firmware and the device itself
    MACHINE = "machine"  # system, container, network, disks, memory of the host, what else runs there
    UNKNOWN = ""  # the line does not tell


# Where a failure of each owner's is reported, and with what; nothing to report is said too.
REPORT_TO = {
    Owner.SCRIPT: "nobody: it is mended in the script or its arguments",
    Owner.LAUNCHER: "nobody: it is mended in how the processes are started",
    Owner.LIBRARY: "the issues of the library that the traceback names, with the versions of `torchport doctor`",
    Owner.TORCH_NPU: "the issues of Ascend/pytorch, with `torchport doctor --bundle`",
    Owner.CANN: "the Ascend forum or the issues of CANN, with the plog of the process and `torchport doctor --bundle`",
    Owner.DRIVER: "Huawei's support, with `npu-smi info` and the device's log (msnpureport)",
    Owner.MACHINE: "whoever keeps the machine or the cluster",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One row; `name` is FAMILY.NAME."""

    name: str
    words: tuple[str, ...]
    pattern: re.Pattern[str] | None
    role: Role
    cause: str
    fix: str
    next: str
    samples: tuple[str, ...]
    source: str
    owner: Owner
    unsure: bool = False

    def matches(self, line: str) -> bool:
        """Whether the row speaks of this line, which holds one of its words."""
        return self.pattern is None or self.pattern.search(line) is not None


@functools.cache
def load_error_rows() -> Mapping[str, Row]:
    """All rows by name. Raises ValueError for a row that breaks the schema above."""
    found: dict[str, Row] = {}
    for file in sorted(resources.files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            family = file.name.removesuffix(".toml")
            for name, row in tomllib.loads(file.read_text("utf-8")).items():
                found[f"{family}.{name}"] = parse_error_row(f"{family}.{name}", row)
    return found


def parse_error_row(name: str, row: Mapping[str, Any]) -> Row:
    """The row of a parsed table; see `load_error_rows`."""
    if not _NEEDED <= set(row) <= _NEEDED | {"pattern", "role", "owner", "unsure"}:
        raise ValueError(f"knowledge/errors: {name} has keys {sorted(row)}")
    if not row["words"] or not all(len(word.encode()) >= 4 for word in row["words"]):
        raise ValueError(f"knowledge/errors: {name} needs words of 4 letters or more")
    role, owner = Role(row.get("role", Role.CAUSE)), Owner(row.get("owner", Owner.UNKNOWN))
    if role in (Role.CAUSE, Role.CODE, Role.SCRIPT) and owner is Owner.UNKNOWN:
        raise ValueError(f"knowledge/errors: {name} needs an owner")
    pattern = re.compile(row["pattern"]) if "pattern" in row else None
    cause, fix, step, source = (row[key] for key in ("cause", "fix", "next", "source"))
    samples, unsure = tuple(row["samples"]), row.get("unsure", False) or _ALTERNATIVES.search(cause) is not None
    return Row(name, tuple(row["words"]), pattern, role, cause, fix, step, samples, source, owner, unsure)
