"""`support.json`: what torch_npu does with the operators and APIs of torch, as `tools/support_data.py` measured it.

The data holds for the versions that it names; torchport pins the same ones (`vnpu.wheels.SUPPORTED`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any


class How(enum.StrEnum):
    """What happens to an operator on the NPU."""

    NATIVE = "native"  # torch_npu has a kernel for it
    COMPOSITE = "composite"  # torch makes it of other operators, which are judged on their own
    FALLBACK = "fallback"  # torch_npu copies to the CPU, computes there and copies back
    REFUSED = "refused"  # an error
    UNKNOWN = "unknown"  # not measured


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """One operator of aten ("add.Tensor"); `refused` are dtypes that it takes on the CPU and not on the NPU."""

    name: str
    how: How
    refused: frozenset[str]

    def with_dtype(self, dtype: str) -> How:
        """What happens to a tensor of this dtype ("float64")."""
        return How.REFUSED if dtype in self.refused else self.how


@dataclasses.dataclass(frozen=True, slots=True)
class Api:
    """One function, module or optimizer of torch: what happens per dtype, and the operators it calls on the NPU."""

    name: str
    dtypes: Mapping[str, How]
    operators: tuple[str, ...]

    @property
    def how(self) -> How:
        """What happens to most users: in float32, or in the first dtype that was measured where there is none."""
        return self.dtypes.get("float32") or next(iter(self.dtypes.values()))

    @property
    def is_refused(self) -> bool:
        """Whether no dtype is computed on the NPU, and most users' is not computed at all."""
        return self.how is How.REFUSED and How.NATIVE not in self.dtypes.values()

    @property
    def on_cpu(self) -> tuple[str, ...]:
        """Those of its operators that the CPU computes."""
        return tuple(name for name in self.operators if judge_operator(name).how is How.FALLBACK)


@functools.cache
def read_measured_versions() -> tuple[str, str]:
    """The versions of torch and torch_npu that the data is about."""
    return _data()["torch"], _data()["torch_npu"]


def judge_operator(name: str) -> Operator:
    """What happens to the operator `name`: "add.Tensor" for aten's, "torchvision::nms" for another library's."""
    name = name.removeprefix("aten::")
    how = _operators().get(name, How.FALLBACK if "::" in name else How.UNKNOWN)
    return Operator(name, how, frozenset(_data()["measured"]["refused"].get(name, ())))


@functools.cache
def find_measured_api(name: str) -> Api | None:
    """What is known about a public name such as "torch.linalg.svd"; in-place and other names mean the same row.

    None for what was not measured: names that do no work on a device, and those without a sample.
    """
    rows, aliases = _data()["apis"], _data()["aliases"]
    for candidate in (name, name.removesuffix("_"), name.replace("torch.Tensor.", "torch.").removesuffix("_")):
        row = rows.get(aliases.get(candidate, candidate))
        if row is not None:
            dtypes = {dtype: how for how in How for dtype in row.get(how.value, ())}
            return Api(candidate, dtypes, tuple(row["operators"]))
    return None


@functools.cache
def find_refused_names() -> frozenset[str]:
    """The names of which no dtype that was tried is taken, by either way."""
    found = {name: find_measured_api(name) for name in (*_data()["apis"], *_data()["aliases"])}
    return frozenset(name for name, api in found.items() if api is not None and api.is_refused)


@functools.cache
def has_public_name(name: str) -> bool | None:
    """Whether torch has the public name; None where the data does not list the names beside it."""
    space, _, word = name.rpartition(".")
    known = _names().get(space)
    return None if known is None or word.startswith("_") else word in known


@functools.cache
def load_removed_names() -> Mapping[str, tuple[str, ...]]:
    """Names that torch still has and that only raise, with the names that torch gives instead."""
    return {name: tuple(instead) for name, instead in _data()["removed"].items()}


@functools.cache
def list_measured_apis() -> tuple[str, ...]:
    """The names of everything that was measured."""
    return tuple(sorted(_data()["apis"]))


@functools.cache
def _operators() -> Mapping[str, How]:
    table = {name: How(how) for how, names in _data()["operators"].items() for name in names}
    return table | dict.fromkeys(_data()["measured"]["inside"], How.FALLBACK)


@functools.cache
def _names() -> Mapping[str, frozenset[str]]:
    return {space: frozenset(names) for space, names in _data()["names"].items()}


@functools.cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(resources.files(__package__).joinpath("support.json").read_text("utf-8"))
    return data
