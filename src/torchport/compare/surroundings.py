"""Differences from before anything was computed: versions, packages, flags of torch, environment variables.

Nothing here speaks against a port. It is said first, since it may explain all that comes after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.findings import Finding, Safety, Severity
from torchport.record.recording import Process, Recording

CODE = "TP367"
SHOWN = 6
# Of the device and its libraries: they differ between a GPU, an NPU and a CPU, and so do what finds and starts them.
OF_DEVICES = (
    "ACL_",
    "ASCEND_",
    "CUDA_",
    "HCCL_",
    "INF_NAN_",
    "NCCL_",
    "NPU_",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "TASK_QUEUE_ENABLE",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_HCCL_",
    "TORCH_NCCL_",
    "VNPU_",
)
PACKAGE, FLAG, VARIABLE, MACHINE = "package", "flag", "environment variable", "machine"


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """`reference` and `port` are what both have of `name`, "not set" for a variable that one lacks."""

    kind: str
    name: str
    reference: str
    port: str

    @property
    def words(self) -> str:
        """Such as "torch 2.4.0 against 2.13.0"."""
        return f"{self.name} {self.reference} against {self.port}"


def list_differences(reference: Recording, port: Recording) -> list[Difference]:
    """The differences between the first processes that have trained, packages first."""
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        return [
            *_compare(PACKAGE, _read_packages(theirs), _read_packages(ours)),
            *_compare(FLAG, _read(theirs, "surroundings", "flags"), _read(ours, "surroundings", "flags")),
            *_compare_variables(_read(theirs, "environment", "variables"), _read(ours, "environment", "variables")),
            *_compare(MACHINE, _read_machine(theirs), _read_machine(ours)),
        ]
    return []


def report_surroundings(reference: Recording, port: Recording) -> Iterator[Finding]:
    """One finding with all of them."""
    found = list_differences(reference, port)
    if found:
        more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield Finding(
            CODE,
            Severity.INFO,
            Safety.REPORT,
            None,
            "different before anything was computed (the original against the port): "
            f"{'; '.join(one.words for one in found[:SHOWN])}{more}",
            "Make equal what can change numbers, or keep it in mind for what follows.",
            evidence={"differences": [dataclasses.asdict(one) for one in found]},
        )


def _read(process: Process, kind: str, field: str) -> Mapping[str, Any]:
    for event in process.of_kind(kind):
        found: Mapping[str, Any] = event.get(field, {})
        return found
    return {}


def _read_packages(process: Process) -> dict[str, Any]:
    """Public versions: a build for CUDA and one for the CPU are the same release."""
    found = {**_read(process, "environment", "versions"), **_read(process, "surroundings", "packages")}
    return {name: str(version).partition("+")[0] for name, version in found.items()}


def _read_machine(process: Process) -> dict[str, Any]:
    """The architecture alone: kernels of the system do not compute."""
    for event in process.of_kind("environment"):
        return {"the machine's architecture": str(event.get("machine", "")).rpartition(" ")[2]}
    return {}


def _compare(kind: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Difference]:
    for name in theirs:
        if name in ours and theirs[name] != ours[name]:
            yield Difference(kind, name, str(theirs[name]), str(ours[name]))


def _compare_variables(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted(theirs.keys() | ours.keys()):
        if not name.startswith(OF_DEVICES) and theirs.get(name) != ours.get(name):
            yield Difference(VARIABLE, name, *(str(one.get(name, "not set")) for one in (theirs, ours)))
