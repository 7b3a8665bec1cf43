"""Watch a training process: what it loses at each step, and what makes two runs differ by chance.

Nothing is changed in what the script computes, but for one thing that it is asked for: random streams that
the script leaves to chance are seeded. Reading a loss waits for the device, as the script's own `loss.item()`
would.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torchport.on_import import after_import
from torchport.patches import Patches
from torchport.record.equal import EqualStart
from torchport.record.recording import Journal


class Recorder:
    """Records into `journal` from `install` to `undo`.

    `seed` seeds Python's, numpy's and torch's generators before the script can; a script that seeds them
    itself overrides it. `prepare(torch)` runs first thing after `import torch`; what it returns is undone
    last. `equal(torch)` makes the `EqualStart` that this run takes part in, or None.
    """

    def __init__(
        self,
        journal: Journal,
        seed: int,
        prepare: Callable[[Any], Patches] | None = None,
        equal: Callable[[Any], EqualStart] | None = None,
    ) -> None:
        self._journal = journal
        self._seed = seed
        self._prepare = prepare
        self._make_equal = equal
        self._equal: EqualStart | None = None
        self._patches = Patches()
        self._undo: list[Callable[[], None]] = []
        self._torch: Any = None
        self._steps = 0
        self._last: float | None = None
        self._inside = False
        self._scales: list[float] = []
        self._device_state: Any = None
        self._random_seen = False
        self._lstm_seen = False
        self._precisions: set[str] = set()

    def install(self) -> None:
        """Seed what is there and watch for the rest being imported."""
        random.seed(self._seed)
        self._log_seeds(random, "seed", "random")
        self._undo.append(after_import("numpy", self._numpy_imported))
        self._undo.append(after_import("torch", self._torch_imported))

    def undo(self) -> None:
        """Put every patched attribute back and stop watching."""
        if self._equal is not None:
            self._equal.remove()
        self._patches.undo()
        while self._undo:
            self._undo.pop()()

    def _numpy_imported(self, numpy: ModuleType) -> None:
        numpy.random.seed(self._seed)
        self._log_seeds(numpy.random, "seed", "numpy")
        unseeded = iter(range(2**31))

        def default_rng(original: Any) -> Any:
            return lambda seed=None: original([self._seed, next(unseeded)] if seed is None else seed)

        self._patches.wrap(numpy.random, "default_rng", default_rng)

    def _torch_imported(self, torch: Any) -> None:
        self._torch = torch
        if self._prepare is not None:
            self._undo.insert(0, self._prepare(torch).undo)
        backend = torch._C._get_privateuse1_backend_name() if hasattr(torch, "npu") else "cpu"
        self._journal.write(
            "torch", version=torch.__version__, backend=backend, threads=torch.get_num_threads()
        )
        torch.manual_seed(self._seed)
        self._log_seeds(torch, "manual_seed", "torch")
        self._patches.wrap(torch.autograd, "backward", self._backward)
        self._patches.wrap(torch.amp.autocast_mode.autocast, "__enter__", self._autocast)
        for scaler in {torch.amp.GradScaler, *_subclasses(torch.amp.GradScaler)}:
            if "scale" in vars(scaler):
                self._patches.wrap(scaler, "scale", self._scale)
        if backend == "npu":
            self._patches.wrap(torch.nn.LSTM, "forward", self._lstm)
        if self._make_equal is not None:
            self._equal = self._make_equal(torch)
            self._equal.install(self._patches)

    def _log_seeds(self, module: ModuleType, name: str, of: str) -> None:
        def wrapper(original: Any) -> Any:
            def seed(*args: Any, **kwargs: Any) -> Any:
                values = [*args, *kwargs.values()]
                self._journal.write("seed", of=of, value=str(values[0]) if values else None)
                return original(*args, **kwargs)

            return seed

        self._patches.wrap(module, name, wrapper)

    def _lstm(self, original: Any) -> Any:
        """torch_npu's documentation of `_lstm_npu` has dropout as not supported: what it is given has no effect."""

        def forward(this: Any, *args: Any, **kwargs: Any) -> Any:
            if this.training and this.dropout > 0 and this.num_layers > 1 and not self._lstm_seen:
                self._lstm_seen = True
                detail = "nn.LSTM drops out between its layers on the CPU and on CUDA, torch_npu's does not"
                self._journal.write("random", detail=detail)
            return original(this, *args, **kwargs)

        return forward

    def _autocast(self, original: Any) -> Any:
        def enter(this: Any) -> Any:
            if this._enabled and this.device != "cpu":
                self._precision(str(this.fast_dtype).removeprefix("torch."))
            return original(this)

        return enter

    def _precision(self, dtype: str) -> None:
        if dtype not in self._precisions:
            self._precisions.add(dtype)
            self._journal.write("precision", dtype=dtype)

    def _scale(self, original: Any) -> Any:
        def scale(this: Any, outputs: Any) -> Any:
            scaled = original(this, outputs)
            if this.is_enabled() and isinstance(outputs, self._torch.Tensor):
                self._scales.append(this.get_scale())
            return scaled

        return scale

    def _backward(self, original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:  # activation checkpointing calls backward within backward
                return original(tensors, *args, **kwargs)
            self._record_step(tensors)
            self._inside = True
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._inside = False

        return backward

    def _record_step(self, tensors: Any) -> None:
        torch = self._torch
        if self._equal is not None and self._steps == 0:
            self._equal.training_started()
        parts = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        value = sum(_value(part) for part in parts if isinstance(part, torch.Tensor))
        value /= self._scales.pop(0) if self._scales else 1.0
        now = time.perf_counter()
        seconds = None if self._last is None else now - self._last
        self._journal.write(
            "step", step=self._steps, loss=value, seconds=seconds, elapsed=self._journal.elapsed()
        )
        self._steps += 1
        self._last = now
        self._watch_device_random()

    def _watch_device_random(self) -> None:
        """Dropout and noise show in the device's generator: nothing else moves it between two steps."""
        if self._random_seen:
            return
        for device in (getattr(self._torch, "npu", None), self._torch.cuda):
            if device is not None and device.is_initialized():
                state = device.get_rng_state()
                if self._device_state is not None and not self._torch.equal(state, self._device_state):
                    self._random_seen = True
                    detail = "random numbers are drawn on the device in every step, as dropout does"
                    self._journal.write("random", detail=detail)
                self._device_state = state
                return


def _value(loss: Any) -> float:
    loss = loss.detach()
    return float(loss.item() if loss.numel() == 1 else loss.cpu().double().sum().item())


def _subclasses(kind: Any) -> set[Any]:
    found: set[Any] = set()
    for child in kind.__subclasses__():
        found |= {child, *_subclasses(child)}
    return found
