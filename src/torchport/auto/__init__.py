"""Run a CUDA script on the NPU without touching it.

    import torchport.auto        # the first line of a script, before torch

`torchport run script.py` and TORCHPORT_AUTO=1 (after `torchport vnpu enable`) do the same without the line.

Importing this package waits for the import of torch and then patches it in this process: CUDA names of devices
mean the NPU, torch.cuda answers for torch.npu, "nccl" is hccl. `unpatch()` puts back every attribute as it was. At
the end of the process a summary on stderr says what was redirected, what ran on the CPU, and what could not be done.
Where there is no NPU, real or virtual, `import torch` says so.

Light on purpose: what happens before torch is imported costs a few milliseconds.
"""

from __future__ import annotations

import sys

from torchport.on_import import after_import, before_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torchport.auto.process import Process

__all__ = ["patch", "unpatch"]

_process: Process | None = None
_waits: list[Callable[[], None]] = []


def patch() -> None:
    """Patch torch, once it is imported or now if it is; doing so again does nothing.

    Raises TorchportError where there is no NPU backend, or where CUDA itself is available: from here if torch is
    imported already, else from `import torch`.
    """
    if "torch" not in sys.modules:
        _waits.append(before_import(("torch", "torch_npu"), _activate))
    _waits.append(after_import("torch", _patch))


def unpatch() -> None:
    """Put every attribute back, or wait for torch no longer. Objects that the script holds stay what they are."""
    global _process
    while _waits:
        _waits.pop()()
    if _process is not None:
        _process.undo()
        _process = None


def _activate() -> None:
    from torchport import vnpu  # here: a process that never imports torch must not pay for it

    vnpu.activate()


def _patch(torch: ModuleType) -> None:
    global _process
    from torchport.auto.process import Process

    if _process is None:
        _process = Process(torch)


patch()
