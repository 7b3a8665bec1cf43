"""For whom the allocator holds memory, noted while the script runs: modules while they compute, weights, gradients and
the optimizer's state at each step. `memory` replays the allocator's own history with these notes."""

from __future__ import annotations

import re
from typing import Any

MOST_EVENTS = 4_000_000
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer state"


class Owners:
    """Notes places in the allocator's history: after how many allocations a module began or ended, and which addresses
    belonged to whom at that place."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._scopes: list[tuple[int, str]] = []  # after so many allocations, what is computing
        self._labels: list[tuple[int, int, str]] = []  # after so many, an address, whose it is
        self._names: dict[int, str] = {}
        self._open: list[str] = []
        self._roots: dict[int, Any] = {}
        self._calls: dict[int, list[int]] = {}  # of each outermost module: calls, and samples that it was given
        self._called: list[list[tuple[int, ...]]] = []  # the same at the end of each step
        self._ends: list[int] = []  # of each step: after so many allocations
        self._waiting = 0  # the outermost module whose batch has not been seen yet
        self._steps = 0
        torch.npu._lazy_call(self._start)
        modules = torch.nn.modules.module
        modules.register_module_forward_pre_hook(self._enter)
        modules.register_module_forward_hook(self._exit, always_call=True)

    def _start(self) -> None:
        self._torch.npu.memory._record_memory_history(
            enabled="all", context=None, stacks="python", max_entries=MOST_EVENTS
        )

    def count_allocations(self) -> int:
        """How many allocations there have been on the device."""
        if not self._torch.npu.is_initialized():
            return 0
        import torch_npu

        stats = torch_npu._C._npu_memoryStats(self._torch.npu.current_device())
        return int(stats["allocation"]["all"]["allocated"])

    def _enter(self, module: Any, args: Any) -> None:
        if not self._open:
            self._root(module)
        if self._waiting:
            self._batch(args)
        self._open.append(self._names.get(id(module)) or type(module).__name__)
        self._scopes.append((self.count_allocations(), self._open[-1]))

    def _exit(self, *_: Any) -> None:
        if self._open:
            self._open.pop()
        self._scopes.append((self.count_allocations(), self._open[-1] if self._open else ""))

    def _root(self, module: Any) -> None:
        self._waiting = id(module)
        if id(module) not in self._roots:
            self._roots[id(module)] = module
            for name, child in module.named_modules():
                self._names[id(child)] = _NUMBER.sub("*", name) or type(module).__name__

    def _batch(self, args: Any) -> None:
        """Count the samples of a call; one by keywords, which no hook sees, has them where it gives them on."""
        for each in args:
            if isinstance(each, self._torch.Tensor) and each.dim() > 0:
                counts = self._calls.setdefault(self._waiting, [0, 0])
                counts[0] += 1
                counts[1] += each.shape[0]
                self._waiting = 0
                return

    def step_done(self) -> None:
        """A step is over whose time counts."""
        self._called.append([tuple(counts) for counts in self._calls.values()])
        self._ends.append(self.count_allocations())

    def before_step(self, optimizer: Any) -> None:
        """Gradients are there."""
        at = self.count_allocations()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._label(at, parameter.grad, GRADIENTS)
        self._scopes.append((at, "optimizer"))

    def after_step(self, optimizer: Any) -> None:
        """The optimizer has its state."""
        at = self.count_allocations()
        self._scopes.append((at, ""))
        self._steps += 1
        if self._steps > 2:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._label(at, parameter, WEIGHTS)
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, self._torch.Tensor):
                    self._label(at, value, OPTIMIZER)
        self._label_weights(at)

    def _label_weights(self, at: int) -> None:
        for root in self._roots.values():
            for tensor in (*root.parameters(), *root.buffers()):
                self._label(at, tensor, WEIGHTS)

    def _label(self, at: int, tensor: Any, owner: str) -> None:
        if tensor.device.type == "npu":
            self._labels.append((at, tensor.untyped_storage().data_ptr(), owner))

    def collect_notes(self) -> dict[str, Any]:
        """All of it, with the allocator's history and its own figures."""
        torch = self._torch
        if not self._steps:  # it has not come that far: out of memory, perhaps
            self._label_weights(self.count_allocations())
        device = torch.npu.current_device()
        history = torch.npu.memory._snapshot()["device_traces"][device]
        return {
            "device": device,
            "total": torch.npu.get_device_properties(device).total_memory,
            "peak": torch.npu.max_memory_allocated(),
            "reserved": torch.npu.max_memory_reserved(),
            "history": [(event["action"], event.get("addr", 0), event.get("size", 0)) for event in history],
            "scopes": self._scopes,
            "labels": self._labels,
            "calls": self._called,
            "ends": self._ends,
        }
