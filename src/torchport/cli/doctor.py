"""Tell what is on this machine, what is wrong with it for an NPU, and the command that mends it.

examples:
  torchport doctor
  torchport doctor --no-probe                  files and variables only: no operator is tried, at most 3 seconds
  torchport doctor --build                     also what compiling needs
  torchport doctor --fix                       make torchvision and torchaudio work for plain `python`, too
  torchport doctor --bundle report.tar.gz --log train.log      for a bug report; names and secrets are taken out

Exit code 0: torchport can run on an NPU, virtual or real. 1: something is missing or wrong; each line says what to do.
What only makes it slow or breaks some scripts is a note.
Without --fix and --bundle nothing is changed or written.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from torchport import cuda_builds
from torchport.doctor import Check, Machine, bundle, examine_machine
from torchport.errors import TorchportError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport doctor`."""
    parser.add_argument("--no-probe", action="store_true", help="do not try an operator on the device")
    parser.add_argument("--build", action="store_true", help="check what compiling needs: gcc, glibc, cmake")
    parser.add_argument(
        "--fix",
        action="store_true",
        help="let torchvision and torchaudio be imported beside a CPU build of torch, by one file in site-packages",
    )
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE", help="write an archive for a bug report, after listing what is in it"
    )
    parser.add_argument(
        "--log", type=Path, action="append", default=[], metavar="FILE", help="a log that goes into the archive"
    )
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for the trial (default: 120)")


def run_command(arguments: argparse.Namespace) -> int:
    """Check, print, and answer 0 if nothing keeps training from running, else 1."""
    if arguments.log and not arguments.bundle:
        raise TorchportError("--log goes into an archive", hint="Give --bundle FILE, or `torchport diagnose` it.")
    checks: list[Check] = []
    if arguments.fix and any(map(cuda_builds.find_broken_library, cuda_builds.PACKAGES)):
        cuda_builds.mend_for_good()
    timeout = None if arguments.no_probe else arguments.timeout
    for check in examine_machine(Machine(), timeout, for_build=arguments.build):
        checks.append(check)
        if not arguments.json:
            print(f"{_word(check)}  {check.name:<14} {check.detail}", flush=True)
            if not check.passed:
                print(f"      {'':<14} -> {check.fix}", flush=True)
    healthy = not any(check.stops for check in checks)
    if arguments.json:
        print(json.dumps({"healthy": healthy, "checks": [dataclasses.asdict(c) for c in checks]}, indent=2))
    if arguments.bundle:
        _bundle(arguments.bundle, checks, arguments.log)
    return 0 if healthy else 1


def _word(check: Check) -> str:
    return "ok  " if check.passed else "note" if check.advice else "FAIL"


def _bundle(path: Path, checks: list[Check], logs: list[Path]) -> None:
    """Say what goes into the archive, ask where somebody can answer, and write it."""
    files = bundle.collect_bundle_files(checks, logs)
    print(f"torchport doctor: {path} gets, without names, addresses and secrets:", file=sys.stderr)
    for name, data in files.items():
        print(f"  {len(data):>9,} bytes  {name}", file=sys.stderr)
    if sys.stdin is not None and sys.stdin.isatty():
        print("Write it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("not written", file=sys.stderr)
            return
    bundle.write_bundle(path, files)
