"""All patches of one process, and what is said of them when it ends."""

from __future__ import annotations

import atexit
import multiprocessing.process
import multiprocessing.util
import os
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from torchport import audit, standins, vnpu
from torchport.auto import (
    compilers,
    data_parallel,
    distributed,
    loading,
    memory_formats,
    npu_faults,
    precision,
    profiling,
)
from torchport.auto.cuda import Cuda
from torchport.auto.devices import Devices
from torchport.auto.environment import find_derived_variables, translate_variables
from torchport.auto.log import Log, count_fallbacks, format_cards, format_summary
from torchport.errors import TorchportError
from torchport.patches import Patches
from torchport.record.cards import list_opened_cards

OWN = str(Path(__file__).parent)


class Process:
    """The patched torch of this process.

    Raises TorchportError where there is no NPU backend, or where CUDA itself is available.
    """

    def __init__(self, torch: ModuleType) -> None:
        if torch.cuda.is_available():
            raise TorchportError(
                "CUDA is available on this machine: run the script as it is.",
                hint="Leave out `torchport run`, `import torchport.auto` and TORCHPORT_AUTO.",
            )
        vnpu.activate()
        import torch_npu  # noqa: F401  does nothing where torch has loaded it by itself

        self._log = Log()
        self._patches = Patches()
        try:
            self._apply(torch)
        except BaseException:
            self._patches.undo()
            raise
        self._said = False
        atexit.register(self._finish)
        if multiprocessing.process.parent_process() is not None:
            # Such a process ends without exit handlers, but with its finalizers.
            multiprocessing.util.Finalize(None, self._finish, exitpriority=0)
        os.register_at_fork(after_in_child=self._log.clear)

    def undo(self) -> None:
        """Put every attribute back; what was counted is still said at the end."""
        self._patches.undo()

    def _apply(self, torch: Any) -> None:
        from torch.utils._device import _device_constructors

        patches, log = self._patches, self._log
        _device_constructors()  # torch caches functions there, and must know the original ones
        _translate_environment()
        following = find_derived_variables(os.environ)
        # CUDA_VISIBLE_DEVICES may be set until the first use of the device; torch.cuda answers with these functions.
        for name in ("_lazy_init", "device_count", "is_available"):
            patches.wrap(torch.npu, name, lambda original: _translating(torch, original, following))
        fallbacks = count_fallbacks(torch, log)
        patches.on_undo(fallbacks._destroy)
        npu_faults.patch_npu_faults(torch, patches)  # before devices: what they hand on is the NPU's name
        memory_formats.patch_memory_formats(torch, patches, log)
        Devices(torch, patches, log).apply_patches()
        profiling.patch_profilers(torch, patches, log)  # before torch.cuda: nvtx is a part of it
        Cuda(torch, patches, log).apply_patches()
        loading.patch_torch_load(torch, patches)
        precision.patch_mixed_precision(torch, patches, log)
        distributed.patch_distributed(torch, patches, log)
        data_parallel.patch_data_parallel(torch, patches, log)
        compilers.patch_compilers(torch, patches, log)
        standins.install()
        patches.on_undo(standins.uninstall)
        patches.wrap(sys, "excepthook", _excepthook)

    def _finish(self) -> None:
        if self._said:
            return
        self._said = True
        events = self._log.collect_events()
        file = os.environ.get("TORCHPORT_AUDIT", "")
        if file:
            try:
                audit.append_events(events, Path(file), self._log.rank)
            except OSError as error:
                print(f"torchport: the audit file {file} cannot be written: {error.strerror}", file=sys.stderr)
        if os.environ.get("TORCHPORT_SUMMARY", "1") == "0":
            return
        for line in format_summary(events, file) if self._log.rank == 0 else ():
            print(line, file=sys.stderr)
        if self._log.rank:  # rank 0 works on the first card
            for line in format_cards(list_opened_cards(sys.modules["torch"]), self._log.rank):
                print(line, file=sys.stderr)


def _excepthook(original: Any) -> Any:
    from torch_npu.utils._error_code import _except_handler

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        original(kind, error, without_own_frames(error))
        if not _except_handler._is_exception(_except_handler.npu_exception):
            # torch_npu 2.13 would print "UNKNOWN applicaiton exception" to the script's stdout.
            _except_handler.exception = None

    return hook


def without_own_frames(error: BaseException) -> TracebackType | None:
    """The traceback of `error`, and of what led to it, without the frames of the patches."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        pending += [each.__cause__, each.__context__]
        trace = each.__traceback__
        while trace is not None and _is_own(trace):
            trace = trace.tb_next
        each.__traceback__ = trace
        while trace is not None:
            while trace.tb_next is not None and _is_own(trace.tb_next):
                trace.tb_next = trace.tb_next.tb_next
            trace = trace.tb_next
    return error.__traceback__


def _is_own(trace: TracebackType) -> bool:
    return os.path.dirname(trace.tb_frame.f_code.co_filename) == OWN


def _translate_environment(replaced: frozenset[str] = frozenset()) -> None:
    os.environ.update(translate_variables(os.environ, replaced))


def _translating(torch: Any, original: Any, following: frozenset[str]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.npu.is_initialized():
            _translate_environment(following)
        return original(*args, **kwargs)

    return call
