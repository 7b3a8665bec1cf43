"""Answers for a lead: the libraries of a project, its operators without a kernel, and the release that is meant."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Any

from torchport.findings import Finding
from torchport.knowledge import support
from torchport.knowledge.libraries import load_libraries
from torchport.results.conversion import LibraryUse, OperatorUse, Release

_ON_CPU = {"TP701": "computed on the CPU", "TP702": "refused"}
_PLACES = 50  # of one library or operator


def collect_inventory(findings: Iterable[Finding]) -> dict[str, Any]:
    """The tables as data: `release`, `libraries`, `operators_without_kernel`."""
    found = list(findings)
    return {
        "release": read_release(),
        "libraries": _list_libraries(found),
        "operators_without_kernel": _list_operators(found),
    }


@functools.cache
def read_release() -> Release:
    """The versions that all of it is about: the measured torch and torch_npu, and the CANN that belongs to them."""
    torch, torch_npu = support.read_measured_versions()
    table = tomllib.loads(resources.files("torchport.knowledge").joinpath("cann.toml").read_text("utf-8"))
    return Release(torch, torch_npu, table["default"])


def _list_libraries(findings: Iterable[Finding]) -> list[LibraryUse]:
    places: dict[str, dict[str, None]] = {}
    versions: dict[str, dict[str, None]] = {}
    for one in findings:
        name = one.evidence.get("library")
        if name and one.location is not None:
            places.setdefault(name, {})[f"{one.location.path}:{one.location.line}"] = None
            if one.evidence.get("version"):
                versions.setdefault(name, {})[str(one.evidence["version"]).rstrip(",")] = None
    table = load_libraries()
    return [
        LibraryUse(
            name,
            ", ".join(versions.get(name, ())),
            table[name].status.value,
            table[name].install or table[name].note,
            tuple(places[name])[:_PLACES],
        )
        for name in sorted(places)
        if name in table
    ]


def _list_operators(findings: Iterable[Finding]) -> list[OperatorUse]:
    places: dict[tuple[str, str], dict[str, None]] = {}
    for one in findings:
        if one.code in _ON_CPU and one.location is not None:
            name = re.split(r" is (?:computed|refused)", one.message)[0]
            key = name, _ON_CPU[one.code]
            places.setdefault(key, {})[f"{one.location.path}:{one.location.line}"] = None
    return [OperatorUse(name, how, tuple(some)[:_PLACES]) for (name, how), some in sorted(places.items())]
