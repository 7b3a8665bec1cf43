"""The precision of a run: the regions of autocast that it enters, and the dtypes that it computes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record import releases
from torchport.record.sites import Sites


class Casting:
    """Writes an event `autocast` for each region and a `precision` for each dtype, once each."""

    def __init__(self, torch: Any, write: Callable[..., None], sites: Sites) -> None:
        self._torch = torch
        self._write = write
        self._sites = sites
        self._regions: set[tuple[str, str, bool]] = set()
        self._dtypes: set[str] = set()

    def install(self, patches: Patches) -> None:
        """Watch regions being entered."""
        patches.wrap(self._torch.amp.autocast_mode.autocast, "__enter__", self._entered)

    def _entered(self, original: Any) -> Any:
        def enter(this: Any) -> Any:
            # A region that is off within none changes nothing: activation checkpointing enters such, in every step.
            if not releases.is_compiling(self._torch) and (this._enabled or self._is_on(str(this.device))):
                self._record(str(this.fast_dtype).removeprefix("torch."), bool(this._enabled))
            return original(this)

        return enter

    def _is_on(self, device: str) -> bool:
        try:
            return bool(self._torch.is_autocast_enabled(device))
        except TypeError:  # before torch 2.4: one function a device, and only the CPU's and the accelerator's
            asked = self._torch.is_autocast_cpu_enabled if device == "cpu" else self._torch.is_autocast_enabled
            return bool(asked())

    def _record(self, dtype: str, enabled: bool) -> None:
        region = self._sites.find_user_line(3), dtype, enabled
        if region not in self._regions:
            self._regions.add(region)
            self._write("autocast", site=region[0], dtype=dtype, enabled=enabled)
        if enabled and dtype not in self._dtypes:
            self._dtypes.add(dtype)
            self._write("precision", dtype=dtype)
