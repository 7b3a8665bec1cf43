"""What a training has become after each step: saved by one run, loaded by others, so that every step of theirs starts
from the same numbers, however far rounding has taken them apart.

A state is what the next step is computed from: parameters of the optimizers and of the modules that were called, their
buffers, the optimizers' own tensors, the scale of each GradScaler, and the random generators of Python, numpy and
torch. Hyper-parameters (a learning rate) belong to the run and are not loaded: a run that has others must show it.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torchport.patches import Patches
from torchport.record import releases, snapshot
from torchport.record.names import list_parameters
from torchport.record.part import Part
from torchport.record.recording import Journal

MOST_STEPS = 200  # of which a state is saved each; as many as have numbers of their own for each parameter
MOST_BYTES = 4 << 30  # of all processes of a run
# Of the states that a recording keeps, one in so many steps: as many as the control run has, which is their yardstick.
EVERY = 20
MOST_KEPT = 1 << 30  # bytes of those, of all processes
SUFFIX = ".pt"


class States(Part):
    """Saves the state of this process after one in `every` steps of its optimizers to `folder`, or with `load` loads
    those that are there.

    `modules()` are those that were called so far. A state is known by the process (`key()`), the optimizer's number and
    how many steps that one has made, so that optimizers that take turns in another order do not get each other's. Of
    each step no more than `most_steps` are saved, and `most_bytes` bytes (of `world` processes together): a run that
    loads goes on by itself from there. If `every` is more than one, it doubles where the bytes are used up, and the
    states between go. A part of a state that does not fit is left as it is and said in a `note`; an event `restored`
    has the step that starts from a loaded state, and `restored()` is called. The start of the training is
    `EqualStart`'s.
    """

    def __init__(
        self,
        torch: Any,
        folder: Path,
        key: Callable[[], str],
        journal: Journal,
        modules: Callable[[], list[Any]],
        *,
        load: bool,
        every: int = 1,
        world: int = 1,
        most_steps: int = MOST_STEPS,
        most_bytes: int = MOST_BYTES,
        restored: Callable[[], object] = lambda: None,
    ) -> None:
        self._torch = torch
        self._folder = folder
        self._key = key
        self._journal = journal
        self._modules = modules
        self._load = load
        self._restored = restored
        self._left = most_bytes // world
        self._every = every
        self._most_steps = most_steps
        self._steps = 0
        self._saved: list[tuple[int, Path, int]] = []  # of those between which others may go: step, file and bytes
        self._counts: dict[int, int] = {}
        self._optimizers: dict[int, Any] = {}  # weak references, as those below: nothing lives longer for us
        self._scalers: list[weakref.ref[Any]] = []
        self._told: set[str] = set()

    def install(self, patches: Patches) -> None:
        """Notice the scalers that are made, until `patches` are undone."""
        patches.wrap(releases.grad_scaler(self._torch), "__init__", self._scaler_made)

    def on_step_end(self, optimizer: Any, number: int, step: int) -> None:
        """Save or load what the next step starts from."""
        self._optimizers.setdefault(number, weakref.ref(optimizer))
        count = self._counts[number] = self._counts.get(number, 0) + 1
        self._steps += 1
        path = self._folder / self._key() / f"optimizer-{number}-{count}{SUFFIX}"
        if self._load:
            self._restore(path, step + 1)
        elif self._steps % self._every == 0 and (self._every > 1 or self._steps <= self._most_steps):
            self._save(path)

    def _scaler_made(self, original: Any) -> Any:
        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            original(this, *args, **kwargs)
            self._scalers.append(weakref.ref(this))

        return init

    def _save(self, path: Path) -> None:
        torch = self._torch
        with torch.no_grad():
            state = {
                "tensors": {name: _kept(one) for name, one in self._tensors()},
                "optimizers": {
                    number: [_copied(torch, optimizer.state.get(parameter, {})) for parameter in self._order(optimizer)]
                    for number, optimizer in self._stepping()
                },
                "forms": {number: self._describe_form(optimizer) for number, optimizer in self._stepping()},
                "scalers": [_scale(one) for one in self._alive(self._scalers)],
                "generators": snapshot.host_generators(torch),
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".unfinished")
        torch.save(state, aside)
        size = aside.stat().st_size
        while size > self._left and self._drop_between():
            pass
        if size > self._left or self._steps % self._every:
            aside.unlink()
            if self._every == 1:
                self._left, self._most_steps = 0, 0
                self._tell(f"only the states of {self._steps - 1} steps were saved: the next needs {size} bytes")
            elif not self._saved:
                self._every = sys.maxsize
                self._tell(f"no state was kept: one needs {size} bytes, more than the {self._left} there are for them")
            return
        self._left -= size
        self._saved.append((self._steps, path, size))
        os.replace(aside, path)

    def _drop_between(self) -> bool:
        """Keep only every second state from now on; whether that has made room."""
        if self._every == 1 or not self._saved:
            return False
        self._every *= 2
        kept = []
        for step, path, size in self._saved:
            if step % self._every:
                path.unlink(missing_ok=True)
                self._left += size
            else:
                kept.append((step, path, size))
        self._saved = kept
        return True

    def _restore(self, path: Path, step: int) -> None:
        torch = self._torch
        if not path.exists():
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            self._tell(f"{path.name} is damaged ({error}): its state was not loaded")
            return
        with torch.no_grad():
            self._restore_tensors(state["tensors"])
            for number, optimizer in self._stepping():
                if state["forms"].get(number) != self._describe_form(optimizer):
                    self._tell(f"the saved state does not fit optimizer {number}, which was left as it is")
                    continue
                for one, saved in zip(self._order(optimizer), state["optimizers"].get(number, ()), strict=False):
                    if saved:
                        optimizer.state[one] = _restored(torch, optimizer.state.get(one, {}), saved, one)
            for scaler, values in zip(self._alive(self._scalers), state["scalers"], strict=False):
                if values:
                    scaler.load_state_dict({**scaler.state_dict(), **values})
        self._restore_generators(state["generators"])
        self._journal.write_event("restored", step=step)
        self._restored()

    def _restore_tensors(self, saved: dict[str, Any]) -> None:
        found = dict(self._tensors())
        differing = sorted(
            name
            for name in found.keys() | saved.keys()
            if name not in found or name not in saved or _local(found[name]).shape != saved[name].shape
        )
        if differing:
            self._tell(f"tensors that the saved state does not fit were left as they are: {differing[0]} first")
        for name, tensor in found.items():
            if name not in differing:
                _local(tensor).data.copy_(saved[name])

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        """Parameters and buffers by names that are the same in all runs of a script."""
        seen: set[int] = set()
        strided = self._torch.strided
        rows: list[tuple[str, Any]] = []
        for number, module in enumerate(self._modules()):
            rows += [(f"module {number} {name}", one) for name, one in module.named_parameters()]
            rows += [(f"module {number} {name}", one) for name, one in module.named_buffers()]
        for number, optimizer in self._stepping():
            rows += [(f"optimizer {number} {place}", one) for place, one in enumerate(list_parameters(optimizer))]
        for name, tensor in rows:
            if id(tensor) not in seen and tensor.layout == strided and tensor.device.type != "meta":
                seen.add(id(tensor))
                yield name, tensor

    def _order(self, optimizer: Any) -> list[Any]:
        """The optimizer's parameters in the order of the modules: a program that keeps them in a set gives them to the
        optimizer in the order of their addresses, which is another in each run."""
        places: dict[int, int] = {}
        for module in self._modules():
            for parameter in module.parameters():
                places.setdefault(id(parameter), len(places))
        return sorted(list_parameters(optimizer), key=lambda parameter: places.get(id(parameter), len(places)))

    def _describe_form(self, optimizer: Any) -> list[list[Any]]:
        """The shapes of an optimizer's parameters, and its settings that are whole numbers, such as the length of a
        history: the state of another one breaks the step that uses it."""
        shapes = [[*_local(parameter).shape] for parameter in self._order(optimizer)]
        counts = [
            [name, value]
            for group in optimizer.param_groups
            for name, value in sorted(group.items())
            if isinstance(value, int) and not isinstance(value, bool)
        ]
        return [*shapes, *counts]

    def _stepping(self) -> Iterator[tuple[int, Any]]:
        """The optimizers that have stepped, with their numbers."""
        for number, reference in sorted(self._optimizers.items()):
            optimizer = reference()
            if optimizer is not None:
                yield number, optimizer

    def _alive(self, references: Any) -> Iterator[Any]:
        return (one for one in [reference() for reference in references] if one is not None)

    def _restore_generators(self, saved: dict[str, Any]) -> None:
        torch = self._torch
        present = snapshot.host_generators(torch)
        drawn = [name for name, state in present.items() if name in saved and not _is_same(torch, state, saved[name])]
        if drawn:
            where = ", ".join(drawn)
            self._tell(f"random numbers were drawn in another number than in the run that saved its states ({where})")
        random.setstate(saved["python"])
        numpy = sys.modules.get("numpy")
        if numpy is not None and "numpy" in saved:
            numpy.random.set_state(saved["numpy"])
        if "torch" in drawn:  # setting its state begins its stream anew (`draws`), which the run that saved it did not
            torch.set_rng_state(saved["torch"])

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._journal.write_event("note", text=text)


def measure_saved_states(folder: Path) -> tuple[int, int]:
    """How many steps a run saved that has been given `folder` (of the process that saved the fewest), and the bytes."""
    rows = [list(process.glob(f"*{SUFFIX}")) for process in folder.glob("*") if process.is_dir()]
    return min(map(len, rows), default=0), sum(path.stat().st_size for files in rows for path in files)


def _local(tensor: Any) -> Any:
    """What of a sharded tensor this process has."""
    return getattr(tensor, "_local_tensor", tensor)


def _kept(tensor: Any) -> Any:
    """The numbers on the CPU; a copy only if the tensor is a part of a larger one, which would be saved as a whole."""
    found = _local(tensor).detach().cpu()
    alone = found.untyped_storage().nbytes() == found.numel() * found.element_size()
    return found if alone else found.clone()


def _copied(torch: Any, value: Any) -> Any:
    """An optimizer's state, its tensors on the CPU; other objects than numbers, words and containers are left out."""
    if isinstance(value, torch.Tensor):
        return _kept(value)
    if isinstance(value, dict):
        return {name: _copied(torch, one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(torch, one) for one in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _is_same(torch: Any, state: Any, saved: Any) -> bool:
    return bool(torch.equal(state, saved) if isinstance(state, torch.Tensor) else state == saved)


def _restored(torch: Any, present: Any, saved: Any, like: Any) -> Any:
    """`present` with the numbers of `saved`, in its own tensors where these have room for them."""
    if isinstance(saved, torch.Tensor):
        if isinstance(present, torch.Tensor) and _local(present).shape == saved.shape:
            _local(present).copy_(saved)
            return present
        return saved if saved.dim() == 0 else saved.to(like.device)
    if isinstance(saved, dict):
        present = present if isinstance(present, dict) else {}
        for name, one in saved.items():
            present[name] = _restored(torch, present.get(name), one, like)
        return present
    if isinstance(saved, list):
        parts = list(present) if isinstance(present, (list, tuple)) else []
        parts += [None] * (len(saved) - len(parts))
        found = [_restored(torch, one, other, like) for one, other in zip(parts, saved, strict=False)]
        return tuple(found) if isinstance(present, tuple) else found
    return present if saved is None else saved


def _scale(scaler: Any) -> dict[str, Any]:
    """The scale and how many steps it has held; the rest of its state are settings."""
    state = scaler.state_dict()
    return {name: state[name] for name in ("scale", "_growth_tracker") if name in state}
