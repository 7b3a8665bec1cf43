"""What is on this machine, what is wrong with it for an NPU, and the command that mends it.

One file per subject, each with a function `list_checks(machine)`; `examine_machine` calls them in order. They look at
files and variables only, import nothing of torch's or the user's, and change nothing. The trial of the device is apart,
in `trial`, as it takes as long as importing torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchport.doctor import (
    build,
    cann,
    devices,
    distributed,
    environment,
    extensions,
    host,
    libraries,
    mindspore,
    packages,
    trial,
)
from torchport.doctor.check import Check, Machine

__all__ = ["Check", "Machine", "examine_machine"]


def examine_machine(machine: Machine, probe_timeout: float | None, *, for_build: bool = False) -> Iterator[Check]:
    """All checks in order of need; the trial, of at most `probe_timeout` seconds, where all it needs is there.

    `for_build`: also what compiling needs.
    """
    yield from host.list_checks(machine)
    if mindspore.is_mindspore_only():  # an environment of its own, without torch_npu, which needs other packages
        yield from mindspore.list_checks(machine)
        return
    needed = [*packages.list_checks(machine), *devices.list_checks(machine)]
    yield from needed
    for subject in (cann, libraries, environment, distributed, mindspore):
        yield from subject.list_checks(machine)
    if for_build:
        yield from build.list_checks(machine)
    yield from extensions.list_checks(machine, probe_timeout)
    if probe_timeout is not None and all(check.passed for check in needed):
        yield trial.try_device(probe_timeout, machine.kind)
