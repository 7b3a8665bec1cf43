"""Describe the virtual NPU and switch it on for a shell or an environment.

examples:
  torchport vnpu info                  which device this machine uses and why, the chip, the variables
  eval "$(torchport vnpu env)"         this shell's programs use it (like CANN's set_env.sh)
  eval "$(torchport vnpu env --mindspore)"   this shell's MindSpore uses it
  torchport vnpu enable                plain `python` of this environment uses it, until `disable`
  torchport vnpu ops --status gap      operators that torch_npu knows and the virtual NPU lacks
  torchport vnpu ops --checks unknown  operators of which it is not known what hardware refuses
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
from collections import Counter
from typing import Any

from torchport import vnpu
from torchport.errors import TorchportError
from torchport.vnpu import cann, chips, persistence
from torchport.vnpu.variables import VARIABLES

# Where the checks of an operator's first phase come from (csrc/opapi/aclnn/check_rows.py).
CHECKS = ("code and page", "code", "definition", "page", "incomplete", "unknown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport vnpu`."""
    parser.add_argument("action", choices=list(ACTIONS), help="what to do; see above")
    parser.add_argument("--mindspore", action="store_true", help="for env: what MindSpore needs, in its environment")
    listing = parser.add_argument_group("for ops")
    listing.add_argument("--status", choices=["implemented", "elsewhere", "gap", "unexported"], help="only these")
    listing.add_argument("--family", help="only this family, e.g. elementwise")
    listing.add_argument("--checks", choices=CHECKS, help="only those whose checks come from there")
    listing.add_argument("--tier", type=int, help="only this tier (1 = needed by common models)")


def run_command(arguments: argparse.Namespace) -> int:
    """Do what `arguments.action` names."""
    ACTIONS[arguments.action](arguments)
    return 0


def _info(arguments: argparse.Namespace) -> None:
    backend = vnpu.detect()
    name, chip = chips.select_chip()
    version = cann.select_version()
    libraries = backend.libraries
    operators = dict(Counter(str(row["status"]) for row in _operators()))
    data = {
        "backend": str(backend.kind),
        "reason": backend.reason,
        "libraries": None if libraries is None else str(libraries),
        "enabled": persistence.is_enabled(),
        "chip": {"name": name, **chip},
        "cann": version,
        "operators": operators,
        "variables": [dataclasses.asdict(row) | {"value": os.environ.get(row.name)} for row in VARIABLES],
    }
    if arguments.json:
        print(json.dumps(data, indent=2))
        return
    print(f"backend    {data['backend']}: {backend.reason}")
    print(f"enabled    {'yes' if data['enabled'] else 'no'}, for plain python ({persistence.pth_file()})")
    print(
        f"chip       {name}: {chip['cube_cores']} cube and {chip['vector_cores']} vector cores at "
        f"{chip['clock_ghz']} GHz, {chip.get('usable_gib', chip['memory_gib']):.2f} GiB "
        f"at {chip['bandwidth_gbs']:g} GB/s, "
        f"bfloat16 {'yes' if chip['bf16'] else 'no'}, results out of range "
        f"{'become inf and nan' if chip['inf_nan'] else 'saturate'}"
    )
    belongs = "the one of this torch_npu" if version == cann.read_default_version() else "chosen by VNPU_CANN"
    print(f"CANN       {version}, {belongs}")
    counts = ", ".join(f"{count} {status}" for status, count in sorted(operators.items()))
    print(f"operators  {counts or 'unknown: not built'}")
    print("variables")
    for row in VARIABLES:
        value = os.environ.get(row.name)
        print(f"  {row.name:<20} {(row.default or 'unset') if value is None else value:<14} {row.meaning}")


def _operators() -> list[dict[str, Any]]:
    """The support list, or nothing where the virtual NPU is not built."""
    return vnpu.operators() if (vnpu.library_directory() / "operators.json").exists() else []


def _env(arguments: argparse.Namespace) -> None:
    if arguments.mindspore:
        from torchport.vnpu import mindspore

        variables = mindspore.environment()
    else:
        variables = vnpu.environment()
    if arguments.json:
        print(json.dumps(variables, indent=2))
        return
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")


def _ops(arguments: argparse.Namespace) -> None:
    wanted = {key: getattr(arguments, key) for key in ("status", "family", "tier", "checks")}
    families = {row["family"] for row in vnpu.operators()} - {""}
    if arguments.family is not None and arguments.family not in families:
        raise TorchportError(
            f"there is no family {arguments.family}", hint=f"Choose one of {', '.join(sorted(families))}."
        )
    rows = [row for row in vnpu.operators() if all(value is None or row[key] == value for key, value in wanted.items())]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        tail = f"  {row['reason']}" if row["reason"] else ""
        if row["unconfirmed"]:
            tail += "  not on its page: " + ", ".join(
                f"{param} {dtypes}" for param, dtypes in row["unconfirmed"].items()
            )
        print(
            f"{row['name']:<44} tier {row['tier'] or '-'}  {row['status']:<12} {row['family']:<12} "
            f"checks: {row['checks']}{tail}".rstrip()
        )


def _enable(arguments: argparse.Namespace) -> None:
    path = persistence.enable()
    if arguments.json:
        print(json.dumps({"enabled": True, "file": str(path)}))
    elif not arguments.quiet:
        print(f"Enabled: `import torch` in this environment activates the NPU backend ({path}).")


def _disable(arguments: argparse.Namespace) -> None:
    removed = persistence.disable()
    if arguments.json:
        print(json.dumps({"enabled": False, "removed": removed}))
    elif not arguments.quiet:
        print("Disabled." if removed else "It was not enabled.")


ACTIONS = {"info": _info, "env": _env, "ops": _ops, "enable": _enable, "disable": _disable}
