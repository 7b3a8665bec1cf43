"""The process that `analyze --run` runs a script in: `python -m torchport.analyze.watch --out FILE -- SCRIPT [ARGS]`.

The script runs on the CPU as if that were a CUDA device, for a few training steps. Every operator of aten that it
calls on tensors of that device is noted, forward, backward and in the optimizer, with dtypes, shapes and the line of
the script that called it. What it does on the host, such as loading data, is not.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torchport.analyze import layouts
from torchport.findings import Result
from torchport.knowledge.arguments import load_role
from torchport.on_import import after_import
from torchport.patches import Patches
from torchport.record import reference, script

COMMAND = "operators"
SHAPES = 4  # of one operator in one step, kept as examples
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class Enough(SystemExit):
    """Ends the script after the last step that is wanted."""


class Watch:
    """Notes the operators of the first `steps` training steps of the script in `folder`.

    A step ends when the optimizer that stepped first has stepped again, so that scripts with several optimizers (a
    GAN) and several backward passes per step are cut in the same place each time.
    """

    def __init__(self, torch: Any, steps: int, folder: Path) -> None:
        self._torch = torch
        self._wanted = steps
        self._folder = folder
        self._patches = Patches()
        self._storages: dict[int, Any] = {}  # of the device, as weak references that keep the key from reuse
        self._first: Any = None
        self._phase = FORWARD
        self._ours: dict[str, bool] = {}
        self._calls: dict[tuple[str, str, str, str, str], Counter[tuple[str, int]]] = {}
        self.steps = 0
        self.precision = ""
        self._mode = _mode(torch, self._note)

    def install(self) -> None:
        """Patch what tells where tensors are and which phase it is, and start noting."""
        torch, patches = self._torch, self._patches
        for owner, names in {**reference.MOVE_TO, **reference.TAKE_DEVICE, "torch": _factories()}.items():
            for name in names:
                self._wrap(owner, name, self._placing)
        for owner in ("torch.Tensor", "torch.nn.Module", "torch.nn.utils.rnn.PackedSequence"):
            self._wrap(owner, "cuda", self._moving)
        patches.wrap(torch.autograd, "backward", self._in_backward)
        patches.wrap(torch.amp.autocast_mode.autocast, "__init__", self._autocast)
        optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim deletes the name
        patches.on_undo(optimizer.register_optimizer_step_pre_hook(self._optimizer_starts).remove)
        patches.on_undo(optimizer.register_optimizer_step_post_hook(self._optimizer_ends).remove)
        self._mode.__enter__()

    def remove(self) -> None:
        """Stop noting and put everything back."""
        self._mode.__exit__(None, None, None)
        self._patches.undo()

    def collect_results(self) -> dict[str, Any]:
        """What was seen; the rows in the order of their first calls."""
        rows = []
        for (phase, name, dtypes, place, layout), calls in self._calls.items():
            path, _, line = place.rpartition(":")
            shapes: dict[int, list[str]] = {}
            for (shape, step), _ in calls.items():
                shapes.setdefault(step, []).append(shape)
            rows.append(
                {
                    "operator": name,
                    "phase": phase,
                    "dtypes": dtypes.split(),
                    "layout": layout,
                    "path": path,
                    "line": int(line or 0),
                    "calls": sum(calls.values()),
                    "shapes": [sorted(some)[:SHAPES] for _, some in sorted(shapes.items())],
                }
            )
        return {"steps": self.steps, "precision": self.precision, "rows": rows}

    def _wrap(self, owner: str, name: str, make: Callable[[Any], Any]) -> None:
        if hasattr(target := pkgutil.resolve_name(owner), name):
            self._patches.wrap(target, name, make)

    # -- where tensors are ---------------------------------------------------------------------------------------

    def _placing(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if any(map(self._is_cuda, (*args, *kwargs.values()))):
                self._mark(args[0] if result is None else result)
            return result

        return call

    def _moving(self, original: Any) -> Any:
        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(this, *args, **kwargs)
            self._mark(result)
            return result

        return call

    def _is_cuda(self, value: Any) -> bool:
        if isinstance(value, self._torch.device):
            return bool(value.type == "cuda")
        return isinstance(value, str) and value.partition(":")[0] == "cuda"

    def _mark(self, value: Any) -> None:
        torch = self._torch
        if isinstance(value, torch.nn.Module):
            tensors = [*value.parameters(), *value.buffers()]
        else:
            tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
            tensors += [value.data] if isinstance(value, torch.nn.utils.rnn.PackedSequence) else []
        for tensor in tensors:
            if tensor.layout is torch.strided:
                storage = torch.multiprocessing.reductions.StorageWeakRef(tensor.untyped_storage())
                self._storages.setdefault(storage.cdata, storage)

    def _is_marked(self, tensor: Any) -> bool:
        torch = self._torch
        return tensor.layout is not torch.strided or tensor.untyped_storage()._cdata in self._storages

    # -- what is called ------------------------------------------------------------------------------------------

    def _note(self, function: Any, inputs: list[Any], options: Mapping[str, Any], result: Any) -> None:
        if not any(map(self._is_marked, inputs)):
            return
        self._mark(result)
        name = str(function).removeprefix("aten.").removesuffix(".default")
        name = name if function.namespace == "aten" else f"{function.namespace}::{name.partition('.')[2]}"
        dtypes = " ".join(dict.fromkeys(str(one.dtype).removeprefix("torch.") for one in inputs))
        place = self._place() if self._phase == FORWARD else ""
        shape = " ".join("x".join(map(str, one.shape)) or "scalar" for one in inputs[:6])
        key = (self._phase, name, dtypes, place, self._layout(inputs, options))
        self._calls.setdefault(key, Counter())[shape, self.steps] += 1

    def _layout(self, inputs: list[Any], options: Mapping[str, Any]) -> str:
        """How the tensors lie in memory, or are asked to, where it is not the usual way."""
        torch = self._torch
        orders = (torch.channels_last, torch.channels_last_3d)
        if options.get("memory_format") in orders:
            return layouts.MADE_CHANNELS_LAST
        if any(one.layout is not torch.strided for one in inputs):
            return layouts.SPARSE
        first = inputs[0]
        last = first.dim() == 4 and first.is_contiguous(memory_format=orders[0])
        return layouts.CHANNELS_LAST if last and not first.is_contiguous() else ""

    def _place(self) -> str:
        """The innermost line of the script's own code, as "path:line"; empty for none."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            path = frame.f_code.co_filename
            if path not in self._ours:
                self._ours[path] = (
                    path[:1] != "<"
                    and script.is_own(Path(path), self._folder)
                    and "torchport" not in Path(path).parts[-3:-1]
                )
            if self._ours[path]:
                return f"{path}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _in_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            before, self._phase = self._phase, BACKWARD
            try:
                return original(*args, **kwargs)
            finally:
                self._phase = before

        return backward

    def _autocast(self, original: Any) -> Any:
        def init(this: Any, device_type: str, dtype: Any = None, enabled: bool = True, *rest: Any, **more: Any) -> None:
            if enabled and device_type == "cuda":
                self.precision = str(dtype or "float16").removeprefix("torch.")
            original(this, device_type, dtype, enabled, *rest, **more)

        return init

    def _optimizer_starts(self, optimizer: Any, *args: Any) -> None:
        self._phase = OPTIMIZER
        for group in optimizer.param_groups:  # the default on an accelerator, which the CPU's is not
            if group.get("foreach", True) is None and not (group.get("fused") or group.get("differentiable")):
                group["foreach"] = True

    def _optimizer_ends(self, optimizer: Any, *args: Any) -> None:
        self._phase = FORWARD
        if self._first is None:
            self._first = optimizer
        if optimizer is self._first:
            self.steps += 1
            if self.steps >= self._wanted:
                raise Enough(0)


def _factories() -> tuple[str, ...]:
    return (*reference.TAKE_DEVICE["torch"], *load_role("device").factories["torch"])


def _mode(torch: Any, note: Callable[[Any, list[Any], Mapping[str, Any], Any], None]) -> Any:
    """A dispatch mode that tells `note` of each operator after it ran: the function, its tensors, its keywords, its
    result."""
    from torch.utils._python_dispatch import TorchDispatchMode

    leaves = torch.utils._pytree.tree_leaves

    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = function(*args, **kwargs)
            inputs = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            if inputs:
                note(function, inputs, kwargs, result)
            return result

    return Mode()


def main() -> int:
    """Run the script that the command line names and leave what was seen; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m torchport.analyze.watch", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file for the result")
    parser.add_argument("--steps", type=int, required=True, help="training steps after which the script is ended")
    parser.add_argument("words", nargs="+", metavar="SCRIPT [ARGS]")
    options = parser.parse_args()
    path, *arguments = options.words
    watches: list[Watch] = []

    def imported(torch: Any) -> None:
        reference.apply_reference_patches(torch, mixed_precision=False)
        watches.append(Watch(torch, options.steps, Path(path).resolve().parent))
        watches[0].install()

    after_import("torch", imported)
    outcome = script.Outcome(130, "interrupted")
    try:
        outcome = script.run_script(path, arguments)
    finally:
        seen = {"steps": 0, "precision": "", "rows": []}
        for watch in watches:
            watch.remove()
            seen = watch.collect_results()
        ended = {"status": outcome.status, "error": outcome.error, "path": outcome.path, "line": outcome.line}
        Result(COMMAND, (), {**seen, **ended}).write(options.out)
    return outcome.status


if __name__ == "__main__":
    sys.exit(main())
