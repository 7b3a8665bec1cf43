"""Tell what is on this machine, which device will be used and why, and how to fix what is missing.

examples:
  torchport doctor
  torchport doctor --fix                       make torchvision and torchaudio work for plain `python`, too
  torchport doctor --json > doctor.json        attach this to a bug report

Exit code 0: torchport can run on an NPU, virtual or real. 1: something is missing; each line says what to do.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from torchport import __version__, cuda_builds, vnpu
from torchport.errors import TorchportError
from torchport.vnpu import wheels
from torchport.vnpu.backend import BUILD_HINT
from torchport.vnpu.probe import ended, probe

INSTALL = f"pip install torch=={wheels.SUPPORTED} torch-npu=={wheels.SUPPORTED}"
# Of a build for CUDA that is imported beside a CPU build of torch.
FOREIGN = " (a CUDA build; its CPU operators are used)"
FOREIGN_FIX = (
    "It is a CUDA build beside a CPU build of torch. `torchport run` and `torchport port` mend that by themselves; "
    "`torchport doctor --fix` does it for plain python. Or install the CPU build of the same version."
)
REINSTALL = "Install the {} that goes with this torch."
# Where the trial fails.
FIXES = {
    vnpu.Kind.VNPU: "The last lines say why. A wrong variable: see `torchport vnpu info`. A symbol or library "
    "that is missing: torch or torch_npu has changed since the virtual NPU was built, so run `make build`.",
    vnpu.Kind.CANN: "The last lines say why: look at `npu-smi info`, and whether this CANN goes with this torch_npu. "
    "TORCHPORT_BACKEND=vnpu takes the virtual NPU instead.",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: `fix` says what to do when not `passed`."""

    name: str
    passed: bool
    detail: str
    fix: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport doctor`."""
    parser.add_argument("--no-probe", action="store_true", help="do not try an operator on the device")
    parser.add_argument(
        "--fix",
        action="store_true",
        help="let torchvision and torchaudio be imported beside a CPU build of torch, by one file in site-packages",
    )
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="for the trial (default: 120)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, print, and answer 0 if everything passed, else 1."""
    checks: list[Check] = []
    if arguments.fix and any(map(cuda_builds.broken, cuda_builds.PACKAGES)):
        cuda_builds.mend_for_good()
    for check in _checks(None if arguments.no_probe else arguments.timeout):
        checks.append(check)
        if not arguments.json:
            print(f"{'ok  ' if check.passed else 'FAIL'}  {check.name:<11} {check.detail}", flush=True)
            if not check.passed:
                print(f"      {'':<11} -> {check.fix}", flush=True)
    healthy = all(check.passed for check in checks)
    if arguments.json:
        print(json.dumps({"healthy": healthy, "checks": [dataclasses.asdict(c) for c in checks]}, indent=2))
    return 0 if healthy else 1


def _checks(probe_timeout: float | None) -> Iterator[Check]:
    """The checks in order of need; the trial of the device only when everything it needs is there."""
    yield Check("torchport", True, f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("python", True, f"{platform.python_version()} ({sys.executable}), {platform.platform()}")
    device, kind = _device()
    needed = [_wheel("torch", kind), _wheel("torch_npu", kind), device]
    yield from needed
    if probe_timeout is not None:
        for name in cuda_builds.PACKAGES:
            if installed(name):
                yield _package(name, probe_timeout)
    if probe_timeout is not None and all(check.passed for check in needed):
        yield _trial(probe_timeout, kind)


def _wheel(name: str, kind: vnpu.Kind) -> Check:
    try:
        wheel = wheels.find(name)
    except TorchportError as error:
        return Check(name, False, error.message, error.hint)
    if wheel is None:
        return Check(name, False, "not installed", INSTALL)
    if problem := wheels.cuda_problem(wheel):
        return Check(name, False, wheel.version, problem)
    # A CANN has the versions of torch_npu that it goes with; the virtual NPU has one.
    right = kind is vnpu.Kind.CANN or wheel.version.partition("+")[0] == wheels.SUPPORTED
    detail = (
        wheel.version if right else f"{wheel.version}, but the virtual NPU is made for {wheels.SUPPORTED}"
    )
    return Check(name, right, detail, INSTALL)


def _device() -> tuple[Check, vnpu.Kind]:
    try:
        backend = vnpu.detect()
    except TorchportError as error:  # TORCHPORT_BACKEND asks for what is not there
        return Check("device", False, error.message, error.hint), vnpu.Kind.NONE
    detail = f"{backend.kind}: {backend.reason}"
    return Check("device", backend.kind is not vnpu.Kind.NONE, detail, BUILD_HINT), backend.kind


def installed(name: str) -> bool:
    """Whether a package of this name can be found; nothing is imported."""
    return importlib.util.find_spec(name) is not None


def _package(name: str, timeout: float) -> Check:
    """torchvision or torchaudio, imported as plain `python` of this environment would."""
    import_it = f"import {name}; print('version', {name}.__version__)"
    output, status = ended(["-c", import_it], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, timeout)
    version = next((line[8:] for line in output.splitlines() if line.startswith("version ")), "")
    foreign = cuda_builds.broken(name) is not None
    if status == 0:
        return Check(name, True, f"{version}{FOREIGN if foreign else ''}")
    last = output.splitlines()[-1:] or [f"exit status {status}"]
    return Check(
        name, False, f"cannot be imported: {last[0]}", FOREIGN_FIX if foreign else REINSTALL.format(name)
    )


def _trial(timeout: float, kind: vnpu.Kind) -> Check:
    result = probe(timeout)
    if result.works:
        return Check("trial", True, f"1+1 on npu:0 of {result.count} ({result.device})")
    last = result.output.splitlines()[-20:]
    return Check("trial", False, "an addition on npu:0 failed:\n" + "\n".join(last), FIXES[kind])
