"""Tell what is on this machine, which device will be used and why, and how to fix what is missing.

examples:
  torchport doctor
  torchport doctor --json > doctor.json        attach this to a bug report

Exit code 0: torchport can run on an NPU, virtual or real. 1: something is missing; each line says what to do.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from torchport import __version__, vnpu
from torchport.errors import TorchportError
from torchport.vnpu import wheels
from torchport.vnpu.backend import BUILD_HINT
from torchport.vnpu.probe import probe

INSTALL = f"pip install torch=={wheels.SUPPORTED} torch-npu=={wheels.SUPPORTED}"
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
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="for the trial (default: 120)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, print, and answer 0 if everything passed, else 1."""
    checks: list[Check] = []
    for check in _checks(None if arguments.no_probe else arguments.timeout):
        checks.append(check)
        if not arguments.json:
            print(f"{'ok  ' if check.passed else 'FAIL'}  {check.name:<10} {check.detail}", flush=True)
            if not check.passed:
                print(f"      {'':<10} -> {check.fix}", flush=True)
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


def _trial(timeout: float, kind: vnpu.Kind) -> Check:
    result = probe(timeout)
    if result.works:
        return Check("trial", True, f"1+1 on npu:0 of {result.count} ({result.device})")
    last = result.output.splitlines()[-20:]
    return Check("trial", False, "an addition on npu:0 failed:\n" + "\n".join(last), FIXES[kind])
