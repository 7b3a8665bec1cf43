"""`environment.toml`: environment variables of CUDA and NCCL and their NPU counterparts."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its `npu` name, empty where there is none, and a `note` on what to check or do instead.

    `values` says how its values are written on the NPU where they are not the same.
    """

    name: str
    npu: str
    note: str
    values: str | Mapping[str, str] = ""

    def convert_value(self, value: str | None) -> str | None:
        """A value as the NPU's variable takes it; None where that is not known, as for a `value` that is not."""
        if not self.values or value is None:
            return None if self.values else value
        if self.values == MEGABYTES:
            count = int(value) if value.isdecimal() else 0
            return str(count // 2**20) if count and count % 2**20 == 0 else None
        assert not isinstance(self.values, str)
        return self.values.get(value.lower())


MEGABYTES = "megabytes"
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
_NUMBERS = re.compile(r"\s*\d+(?:\s*,\s*\d+)*\s*")


def order_of(devices: str) -> bool | None:
    """Whether a list of device numbers ascends, as ASCEND_RT_VISIBLE_DEVICES needs it; None for what is no list."""
    if not _NUMBERS.fullmatch(devices):
        return None
    numbers = [int(number) for number in devices.split(",")]
    return numbers == sorted(set(numbers))


def hides_all(devices: str) -> bool:
    """Whether a value of CUDA_VISIBLE_DEVICES hides every card: "", "-1"."""
    return not devices.strip(" ,") or devices.lstrip(" ,").startswith("-")


def out_of_order(devices: str) -> str:
    """What to say of a list that does not ascend."""
    return f"The numbers {devices} do not ascend: with that order no device is visible. Sort them."


@functools.cache
def load_variables() -> Mapping[str, Variable]:
    """All variables by CUDA name. Raises ValueError for a row that breaks the schema in `environment.toml`."""
    rows = tomllib.loads(resources.files(__package__).joinpath("environment.toml").read_text("utf-8"))
    for name, row in rows.items():
        if not set(row) <= {"npu", "review", "missing", "values"} or ("npu" in row) == ("missing" in row):
            raise ValueError(f"environment.toml: the row {name} has keys {sorted(row)}")
    return {
        name: Variable(name, row.get("npu", ""), row.get("review") or row.get("missing", ""), row.get("values", ""))
        for name, row in rows.items()
    }
