"""Which device will be used, and whether this process may see it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from torchport import vnpu
from torchport.doctor.check import Check, Machine
from torchport.errors import TorchportError
from torchport.knowledge.environment import VISIBLE, order_of, out_of_order
from torchport.vnpu.backend import BUILD_HINT

# Beside /dev/davinciN a process needs the manager and the memory driver.
NODES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_DEVICE = re.compile(r"davinci\d+")


def list_checks(machine: Machine) -> Iterator[Check]:
    """The backend, the device nodes where there is hardware, and the variable that hides devices."""
    yield _device(machine)
    yield from _nodes(machine)
    yield from _visible(machine)


def _device(machine: Machine) -> Check:
    backend = machine.backend
    if isinstance(backend, TorchportError):  # TORCHPORT_BACKEND asks for what is not there
        return Check("device", False, backend.message, backend.hint)
    detail = f"{backend.kind}: {backend.reason}"
    fix = f"{BUILD_HINT} On a machine with an NPU: install CANN, and `source set_env.sh` of it."
    return Check("device", backend.kind is not vnpu.Kind.NONE, detail, fix)


def _nodes(machine: Machine) -> Iterator[Check]:
    folder = machine.resolve_path("/dev")
    found = sorted(name for name in os.listdir(folder) if _DEVICE.fullmatch(name)) if folder.is_dir() else []
    if not found:
        return
    lacking = [name for name in NODES if not machine.resolve_path(name).exists()]
    if lacking:
        options = " ".join(f"--device={name}" for name in lacking)
        yield Check(
            "device nodes", False, f"{', '.join(found)}, but not {', '.join(lacking)}", f"docker run {options} ..."
        )
        return
    closed = [name for name in found if not os.access(folder / name, os.R_OK | os.W_OK)]
    fix = "sudo usermod -aG HwHiAiUser $USER, and log in again; in a container give the group with --group-add."
    detail = f"{', '.join(closed)} may not be used by this user" if closed else ", ".join(found)
    yield Check("device nodes", not closed, detail, fix)


def _visible(machine: Machine) -> Iterator[Check]:
    numbers = machine.environ.get(VISIBLE, "")
    if not numbers:
        return
    ascends = order_of(numbers)
    if ascends is None:
        yield Check("visible devices", False, f"{VISIBLE}={numbers} is no list of numbers", f"unset {VISIBLE}")
    elif not ascends:
        right = ",".join(map(str, sorted({int(number) for number in numbers.split(",")})))
        yield Check("visible devices", False, out_of_order(numbers), f"export {VISIBLE}={right}")
    elif machine.kind is vnpu.Kind.VNPU and int(numbers.split(",")[-1]) >= (count := _count(machine)):
        yield Check(
            "visible devices", False, f"{VISIBLE}={numbers}, and there are {count} devices, from 0", f"unset {VISIBLE}"
        )
    else:
        yield Check("visible devices", True, f"{VISIBLE}={numbers}")


def _count(machine: Machine) -> int:
    word = machine.environ.get("VNPU_DEVICES", "")
    return int(word) if word.isdecimal() else 8
