"""The batches of a run: host tensors that it uploads, kept by one run and taken by another in place of its own.

So a run elsewhere computes with the same data, whatever order, augmentation or clock decided about them. What a batch
is, and by which place and visit it is known, says `uploads`; weights are left to `equal`.

    batches/<rank>/<place>-<visit>.pt     {"site": str, "visit": int, "value": tensor}, as torch.save writes it
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchport.record.part import Part

STEPS = 20  # as many as the control run of a port has: what is judged most closely
MOST_BYTES = 1 << 30


class Batches(Part):
    """Leaves the batches of a run alone."""

    def on_upload(self, tensor: Any, site: str, visit: int) -> Any:
        """Told of a tensor that is about to be uploaded at `site` for the `visit`th time, from 0; gives what is
        uploaded."""
        return tensor


class _Stored(Batches):
    """`folder` has a folder for this process, which `key()` names among those of its run once the first batch comes
    by."""

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


class Keep(_Stored):
    """Stores the batches of the first `STEPS` steps in `folder`, up to `MOST_BYTES`; says in a note where that was too
    little."""

    _steps = 0
    _bytes = 0

    def on_upload(self, tensor: Any, site: str, visit: int) -> Any:
        """Store a batch; gives it back. Raises OSError where the disk is full."""
        if self._steps >= STEPS or tensor.device.type != "cpu":
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


class Take(_Stored):
    """Gives the batches in `folder` in place of those of this run that have their shape and dtype."""

    _told = False

    def on_upload(self, tensor: Any, site: str, visit: int) -> Any:
        """The batch that is kept for this upload, or `tensor` itself."""
        if tensor.device.type != "cpu":
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
            self._tell(f"upload {visit} at {site} is of {mine}, that of the reference of {theirs}: not replaced")
            return tensor
        return value

    def _tell(self, text: str) -> None:
        if not self._told:
            self._told = True
            self._note(text)
