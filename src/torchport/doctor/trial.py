"""The device tried by one operator, in a process of its own."""

from __future__ import annotations

from torchport import vnpu
from torchport.doctor.check import Check
from torchport.vnpu.probe import probe_device

# What torch_npu 2.13 says at the first allocation of every program on such chips; nothing in CANN or here changes that.
PADDING = "32 padding size"
PADDING_EXPLAINED = (
    f'; its warning of a "{PADDING}" is nothing to mend: torch_npu adds 32 bytes to each allocation on chips before '
    "the Ascend 950"
)
# Where the trial fails.
FIXES = {
    vnpu.Kind.VNPU: "The last lines say why. A wrong variable: see `torchport vnpu info`. A symbol or library "
    "that is missing: torch or torch_npu has changed since the virtual NPU was built, so run `make build`.",
    vnpu.Kind.CANN: "The last lines say why: look at `npu-smi info`, and whether this CANN goes with this torch_npu. "
    "TORCHPORT_BACKEND=vnpu takes the virtual NPU instead.",
}


def try_device(timeout: float, kind: vnpu.Kind) -> Check:
    """An addition on npu:0."""
    result = probe_device(timeout)
    if result.works:
        explained = PADDING_EXPLAINED if PADDING in result.output else ""
        return Check("trial", True, f"1+1 on npu:0 of {result.count} ({result.device}){explained}")
    last = result.output.splitlines()[-20:]
    return Check("trial", False, "an addition on npu:0 failed:\n" + "\n".join(last), FIXES[kind])
