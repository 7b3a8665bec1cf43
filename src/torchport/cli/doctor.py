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
from torchport.vnpu import wheels
from torchport.vnpu.backend import BUILD_HINT
from torchport.vnpu.probe import probe

INSTALL = f"pip install torch=={wheels.SUPPORTED} torch-npu=={wheels.SUPPORTED}"


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
    needed = [_torch(), _torch_npu(), _device()]
    yield from needed
    if probe_timeout is not None and all(check.passed for check in needed):
        yield _trial(probe_timeout)


def _torch() -> Check:
    torch = wheels.find("torch")
    if torch is None:
        return Check("torch", False, "not installed", INSTALL)
    if problem := wheels.cuda_problem(torch):
        return Check("torch", False, torch.version, problem)
    return _supported(torch)


def _torch_npu() -> Check:
    torch_npu = wheels.find("torch_npu")
    return Check("torch_npu", False, "not installed", INSTALL) if torch_npu is None else _supported(torch_npu)


def _supported(wheel: wheels.Wheel) -> Check:
    right = wheel.version.partition("+")[0] == wheels.SUPPORTED
    detail = (
        wheel.version if right else f"{wheel.version}, but the virtual NPU is made for {wheels.SUPPORTED}"
    )
    return Check(wheel.name, right, detail, INSTALL)


def _device() -> Check:
    backend = vnpu.detect()
    detail = f"{backend.kind}: {backend.reason}"
    return Check("device", backend.kind is not vnpu.Kind.NONE, detail, BUILD_HINT)


def _trial(timeout: float) -> Check:
    result = probe(timeout)
    if result.works:
        return Check("trial", True, f"1+1 on npu:0 of {result.count} ({result.device})")
    last = result.output.splitlines()[-20:]
    return Check(
        "trial", False, "an addition on npu:0 failed:\n" + "\n".join(last), "make build; then doctor again"
    )
