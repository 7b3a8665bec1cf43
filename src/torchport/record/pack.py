"""The batches of a run: host tensors that it uploads, kept by one run and taken by another in place of its own.

So a run elsewhere computes with the same data, whatever order, augmentation or clock decided about them. A batch is
known by the place in the script where it is moved to the device and by the how manieth move there it is; moves of
tensors that are on the device already count too, since in the reference nothing tells them apart. Parameters, buffers
and what needs a gradient are left alone: `equal` has the weights.

    batches/<rank>/<place>-<visit>.pt     {"site": str, "visit": int, "value": tensor}, as torch.save writes it
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchport.patches import Patches
from torchport.record import releases
from torchport.record.part import Part
from torchport.record.sites import Sites

STEPS = 20  # as many as the control run of a port has: what is judged most closely
MOST_BYTES = 1 << 30
ACCELERATORS = ("cuda", "npu")
# Who moves tensors that are nobody's batch: a module its buffers, a draw its numbers.
_NOT_BATCHES = (
    os.path.join("torch", "nn", "modules", "module.py"),
    os.path.join("torchport", "record", "draws", "draws.py"),
)
_Moved = Callable[[Any, str, int], Any]


class Moves:
    """Calls `moved(tensor, site, visit)` for each tensor that the script moves to an accelerator, of whatever name,
    and moves what that gives back."""

    def __init__(self, torch: Any, sites: Sites, moved: _Moved) -> None:
        self._torch = torch
        self._sites = sites
        self._moved = moved
        self._visits: dict[str, int] = {}
        self._here = threading.local()

    def install(self, patches: Patches) -> None:
        """Watch until `patches` are undone."""
        tensor = self._torch.Tensor
        patches.wrap(tensor, "to", functools.partial(self._watched, self._goes_there))
        for name in ACCELERATORS:
            if hasattr(tensor, name):
                patches.wrap(tensor, name, functools.partial(self._watched, lambda *_: True))

    def _watched(self, goes_there: Callable[[Any, Any], bool], original: Any) -> Any:
        torch = self._torch

        def move(this: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                releases.is_compiling(torch)
                or getattr(self._here, "inside", False)
                or type(this) is not torch.Tensor
                or this.requires_grad
                or not goes_there(args, kwargs)
                or torch._C._functorch.peek_interpreter_stack() is not None
                or sys._getframe(1).f_code.co_filename.endswith(_NOT_BATCHES)
            ):
                return original(this, *args, **kwargs)
            site = self._sites.here(2)
            visit = self._visits[site] = self._visits.get(site, -1) + 1
            self._here.inside = True  # one such method may be made of another, as Tensor.npu of Tensor.to
            try:
                return original(self._moved(this, site, visit), *args, **kwargs)
            finally:
                self._here.inside = False

        return move

    def _goes_there(self, args: Any, kwargs: Any) -> bool:
        place = kwargs.get("device", kwargs.get("other", args[0] if args else None))
        if isinstance(place, self._torch.Tensor):
            place = place.device
        if isinstance(place, self._torch.device):
            return place.type in ACCELERATORS
        if isinstance(place, str):
            return place.partition(":")[0] in ACCELERATORS
        return isinstance(place, int) and not isinstance(place, bool)


class _Batches(Part):
    """The folder of this process: `key()` names it among those of its run, once the first batch comes by."""

    def __init__(self, torch: Any, folder: Path, key: Callable[[], str], note: Callable[[str], None]) -> None:
        self._torch = torch
        self._folder = folder
        self._key = key
        self._note = note

    @functools.cached_property
    def _directory(self) -> Path:
        return self._folder / self._key()

    def _path(self, site: str, visit: int) -> Path:
        return self._directory / f"{hashlib.sha256(site.encode()).hexdigest()[:16]}-{visit}.pt"

    def _is_batch(self, tensor: Any) -> bool:
        return bool(tensor.device.type == "cpu" and tensor.layout == self._torch.strided)


class Keep(_Batches):
    """Stores the batches of the first `STEPS` steps in `folder`, up to `MOST_BYTES`; says in a note where that was too
    little."""

    _steps = 0
    _bytes = 0

    def moved(self, tensor: Any, site: str, visit: int) -> Any:
        """Store a batch; gives it back. Raises OSError where the disk is full."""
        if self._steps >= STEPS or not self._is_batch(tensor):
            return tensor
        self._bytes += tensor.numel() * tensor.element_size()
        if self._bytes > MOST_BYTES:
            self._note(f"the batches of {self._steps} steps were kept: more take over {MOST_BYTES >> 30} GiB")
            self._steps = STEPS
            return tensor
        path = self._path(site, visit)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".unfinished")
        # A copy: torch.save writes the whole storage, of which this may be a small part.
        value = {"site": site, "visit": visit, "value": tensor.detach().clone()}
        self._torch.save(value, aside)
        os.replace(aside, path)
        return tensor

    def step_done(self) -> None:
        """Count the steps."""
        self._steps += 1


class Take(_Batches):
    """Gives the batches in `folder` in place of those of this run that have their shape and dtype."""

    _told = False

    def moved(self, tensor: Any, site: str, visit: int) -> Any:
        """The batch that is kept for this move, or `tensor` itself."""
        if not self._is_batch(tensor):
            return tensor
        path = self._path(site, visit)
        try:
            value = self._torch.load(path, map_location="cpu", weights_only=True)["value"]
        except FileNotFoundError:
            return tensor
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            self._tell(f"{path} is damaged ({error}): record the reference again")
            return tensor
        if value.shape != tensor.shape or value.dtype != tensor.dtype:
            mine, theirs = (f"{tuple(one.shape)} {one.dtype}" for one in (tensor, value))
            self._tell(
                f"move {visit} at {site} is of {mine}, that of the reference of {theirs}: not replaced"
            )
            return tensor
        return value

    def _tell(self, text: str) -> None:
        if not self._told:
            self._told = True
            self._note(text)
