"""The device tried by one operator, and packages by importing them, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

from torchport import cuda_builds, vnpu
from torchport.doctor.check import Check
from torchport.doctor.packages import is_package_installed
from torchport.vnpu.probe import probe_device, run_python

# Of a build for CUDA that is imported beside a CPU build of torch.
FOREIGN = " (a CUDA build; its CPU operators are used)"
FOREIGN_FIX = (
    "It is a CUDA build beside a CPU build of torch. `torchport run` and `torchport port` mend that by themselves; "
    "`torchport doctor --fix` does it for plain python. Or install the CPU build of the same version."
)
# What torch_npu 2.13 says at the first allocation of every program on such chips; nothing in CANN or here changes that.
PADDING = "32 padding size"
PADDING_EXPLAINED = (
    f'; its warning of a "{PADDING}" is nothing to mend: torch_npu adds 32 bytes to each allocation on chips before '
    "the Ascend 950"
)
REINSTALL = "Install the {} that goes with this torch."
# Where the trial fails.
FIXES = {
    vnpu.Kind.VNPU: "The last lines say why. A wrong variable: see `torchport vnpu info`. A symbol or library "
    "that is missing: torch or torch_npu has changed since the virtual NPU was built, so run `make build`.",
    vnpu.Kind.CANN: "The last lines say why: look at `npu-smi info`, and whether this CANN goes with this torch_npu. "
    "TORCHPORT_BACKEND=vnpu takes the virtual NPU instead.",
}


def try_packages(timeout: float) -> Iterator[Check]:
    """torchvision and torchaudio where they are installed, imported as plain `python` of this environment would."""
    for name in cuda_builds.PACKAGES:
        if is_package_installed(name):
            yield _package(name, timeout)


def try_device(timeout: float, kind: vnpu.Kind) -> Check:
    """An addition on npu:0."""
    result = probe_device(timeout)
    if result.works:
        explained = PADDING_EXPLAINED if PADDING in result.output else ""
        return Check("trial", True, f"1+1 on npu:0 of {result.count} ({result.device}){explained}")
    last = result.output.splitlines()[-20:]
    return Check("trial", False, "an addition on npu:0 failed:\n" + "\n".join(last), FIXES[kind])


def _package(name: str, timeout: float) -> Check:
    import_it = f"import {name}; print('version', {name}.__version__)"
    output, status = run_python(["-c", import_it], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, timeout)
    version = next((line[8:] for line in output.splitlines() if line.startswith("version ")), "")
    foreign = cuda_builds.find_broken_library(name) is not None
    if status == 0:
        return Check(name, True, f"{version}{FOREIGN if foreign else ''}")
    last = output.splitlines()[-1:] or [f"exit status {status}"]
    return Check(name, False, f"cannot be imported: {last[0]}", FOREIGN_FIX if foreign else REINSTALL.format(name))
