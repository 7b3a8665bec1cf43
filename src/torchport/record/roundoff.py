"""In which format the cube unit of an NPU computes with float32 tensors, and how much that rounds.

CANN chooses by `cubeMathType`, torch_npu by `torch.npu.conv.allow_hf32` and `torch.npu.matmul.allow_hf32`. The virtual
NPU reads the settings and computes in float32 all the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchport import vnpu
from torchport.record.part import Part
from torchport.record.recording import Journal, Recording

if TYPE_CHECKING:
    from torchport.results.comparison import Roundoff

CONVOLUTION, MATMUL = KINDS = ("convolution", "matmul")
FLOAT32 = "float32"
# torch_npu's number of the first chip whose cube unit computes in float32: 910B1 (csrc/core/npu/NpuVariables.h there).
FIRST_WITH_FLOAT32 = 220


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """`roundoff` is the largest relative error of rounding one number to the format."""

    words: str
    roundoff: float
    source: str


FORMATS: Mapping[str, Format] = {
    "hf32": Format(
        "HF32",
        2**-12,  # 11 bits of mantissa behind the leading one, rounded to nearest
        "hiascend.com, ATC --allow_hf32: a mantissa of 11 bits, where FP16 has 10; on for Conv, off for Matmul",
    ),
    "float16": Format(
        "FP16",
        2**-11,
        "CANN ops-nn, aclnnBaddbmm: the cube of Atlas training products has no FLOAT32, inputs become FLOAT16",
    ),
}
# What an NPU with CANN does where the script sets nothing (torch_npu/npu/npu_config.py).
DEFAULTS: Mapping[str, str] = {CONVOLUTION: "hf32"}


class Device(Part):
    """Records an event `device` when the settings of a port's process are known, and where they change."""

    def __init__(self, torch: Any, journal: Journal) -> None:
        self._torch = torch
        self._journal = journal
        self._told: dict[str, str] = {}

    def step_done(self) -> None:
        """The settings that this step was computed with."""
        if hasattr(self._torch, "npu"):
            found = read_npu_formats(self._torch)
            if found != self._told:
                self._told = found
                virtual = vnpu.launches() is not None
                saturates = not self._torch.npu.utils.is_support_inf_nan()
                self._journal.write_event("device", settings={**found, "virtual": virtual, "saturates": saturates})


def read_npu_formats(torch: Any) -> dict[str, str]:
    """The format of each of `KINDS` as torch_npu is set now."""
    from torch_npu.npu.utils import get_soc_version

    npu = torch.npu
    if get_soc_version() < FIRST_WITH_FLOAT32:
        return dict.fromkeys(KINDS, "float16")
    chosen = {0: FLOAT32, 1: "hf32", 2: "float16", 3: "hf32"}  # cubeMathType, aclnnMatmul's documentation
    kind = getattr(npu.matmul, "cube_math_type", None)
    matmul = "hf32" if npu.matmul.allow_hf32 else FLOAT32
    return {
        CONVOLUTION: "hf32" if npu.conv.allow_hf32 else FLOAT32,
        MATMUL: matmul if kind is None else chosen.get(int(kind), matmul),
    }


def read_declared_formats(recording: Recording) -> dict[str, str]:
    """By kind, the coarsest format other than float32 that a run told of; {} for the virtual NPU and for a CPU."""
    found: dict[str, str] = {}
    for event in recording.of_kind("device"):
        told: Mapping[str, Any] = event["settings"]
        for kind in () if told.get("virtual") else KINDS:
            name = told.get(kind, FLOAT32)
            if name in FORMATS and FORMATS[name].roundoff > _roundoff(found.get(kind)):
                found[kind] = name
    return found


def describe_formats(formats: Mapping[str, str]) -> list[Roundoff]:
    """`formats` (a format's name by kind) for people and programs."""
    from torchport.results.comparison import Roundoff  # which the recorder, imported into every run, does not need

    return [
        Roundoff(f"{FORMATS[name].words} {kind}", FORMATS[name].roundoff, FORMATS[name].source)
        for kind, name in _known(formats)
    ]


def _known(formats: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((kind, name) for kind, name in formats.items() if name in FORMATS)


def _roundoff(name: str | None) -> float:
    return 0.0 if name is None else FORMATS[name].roundoff
