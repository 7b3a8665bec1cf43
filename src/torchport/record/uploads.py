"""Checksums of the tensors that the script sends to the device: is it the same data, in the same order?"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import zlib
from collections.abc import Callable
from types import CodeType
from typing import Any

from torchport.on_import import after_import
from torchport.patches import Patches
from torchport.record import quiet, releases
from torchport.record.norms import sample_elements
from torchport.record.pack import Batches
from torchport.record.part import Part
from torchport.record.quantities import DIGITS, suspend_tracking
from torchport.record.readings import Readings

SAMPLE = 1 << 16  # elements of a tensor that are looked at
VISITS = 200  # of each place
# Packages whose calls are no upload of the script's: moves of modules, copies inside of operators.
_WITHIN = ("torch", "torch_npu", "torchport")


class Uploads(Part):
    """Writes an event `upload` for each tensor of the host that is sent somewhere by `to`, `cuda`, `npu` or `copy_`,
    or made there by `torch.tensor` or `torch.as_tensor`, in code that is not torch's own.

    `batches` keeps what is sent, or gives something else to be sent in its place.

    In the reference everything is on the host, and where a tensor is sent shows in neither run for sure
    (`x.to(y.device)`). So each call that names a place counts, in both runs, and visits are the same; what is on an
    accelerator already has an empty `checksum`, since its numbers are the run's own. Weights are left out: parameters
    and what requires a gradient. Copies of other threads than the main one are marked `aside`.
    """

    def __init__(
        self,
        torch: Any,
        write: Callable[..., None],
        readings: Readings,
        site: Callable[[], str],
        batches: Batches | None = None,
    ) -> None:
        self._torch = torch
        self._write = write
        self._readings = readings
        self._site = site
        self._batches = batches or Batches()
        self._visits: dict[str, int] = {}
        self._files: dict[CodeType, bool] = {}

    def install(self, patches: Patches) -> None:
        """Watch the calls, also those that torch_npu brings."""
        torch = self._torch
        patches.wrap(torch.Tensor, "to", self._moved)
        patches.wrap(torch.Tensor, "cuda", self._sent)
        patches.wrap(torch.Tensor, "copy_", self._copied)
        for name in ("tensor", "as_tensor"):
            patches.wrap(torch, name, self._made)
            _tell_torchscript(torch, patches, name)
        if hasattr(torch.Tensor, "npu"):
            patches.wrap(torch.Tensor, "npu", self._sent)
        else:
            patches.on_undo(after_import("torch_npu", lambda _: patches.wrap(torch.Tensor, "npu", self._sent)))

    def _moved(self, original: Any) -> Any:
        def to(this: Any, *args: Any, **kwargs: Any) -> Any:
            if not releases.is_compiling(self._torch) and self._names_a_place(args, kwargs):
                this = self._see(this)
            return original(this, *args, **kwargs)

        return to

    def _sent(self, original: Any) -> Any:
        def send(this: Any, *args: Any, **kwargs: Any) -> Any:
            if not releases.is_compiling(self._torch):
                this = self._see(this)
            return original(this, *args, **kwargs)

        return send

    def _copied(self, original: Any) -> Any:
        def copy_(this: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
            if not releases.is_compiling(self._torch) and not this.requires_grad:
                source = self._see(source)
            return original(this, source, *args, **kwargs)

        return copy_

    def _made(self, original: Any) -> Any:
        def make(data: Any, *args: Any, **kwargs: Any) -> Any:
            if releases.is_compiling(self._torch) or kwargs.get("device") is None:
                return original(data, *args, **kwargs)
            if isinstance(data, self._torch.Tensor):
                data = self._see(data)
            elif self._is_outside(sys._getframe(1).f_code):
                host = {key: value for key, value in kwargs.items() if key not in ("device", "requires_grad")}
                made = original(data, *args, **host, device="cpu")
                sent = self._record(made)
                if sent is not made:
                    return sent.to(kwargs["device"]).requires_grad_(kwargs.get("requires_grad", False))
            return original(data, *args, **kwargs)

        return make

    def _names_a_place(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        first = args[0] if args else None
        if first is not None and not isinstance(first, self._torch.dtype):
            return True
        return kwargs.get("device") is not None or kwargs.get("other") is not None

    def _see(self, tensor: Any) -> Any:
        """Called by what the script calls; gives what is to be sent."""
        if (
            type(tensor) is self._torch.Tensor
            and not tensor.requires_grad
            and self._is_outside(sys._getframe(2).f_code)
        ):
            return self._record(tensor)
        return tensor

    def _is_outside(self, code: CodeType) -> bool:
        known = self._files.get(code)
        if known is None:
            files = [getattr(sys.modules.get(name), "__file__", None) for name in _WITHIN]
            within = tuple(os.path.dirname(file) + os.sep for file in files if file)
            known = self._files[code] = not code.co_filename.startswith(within)
        return known

    @quiet.silence_operators
    def _record(self, tensor: Any) -> Any:
        torch = self._torch
        if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_quantized:
            return tensor
        site = self._site()
        visit = self._visits.get(site, 0)
        if visit >= VISITS or not self._readings.can_read():
            return tensor
        self._visits[site] = visit + 1
        # Threads beside the script's come in an order of chance: transformers 5 loads weights by a pool of them.
        aside = threading.current_thread() is not threading.main_thread()
        if not aside:
            with suspend_tracking(torch):
                tensor = self._batches.on_upload(tensor, site, visit)
        text, total, norm = "", 0.0, 0.0
        if tensor.device.type == "cpu":
            with suspend_tracking(torch):
                text, total, norm = checksum_tensor(torch, tensor)
        fields = {"site": site, "visit": visit, "size": tensor.numel(), "checksum": text, "sum": total, "norm": norm}
        fields |= {"aside": True} if aside else {}
        self._readings.schedule_write((), lambda _: self._write("upload", **fields))
        return tensor


def checksum_tensor(torch: Any, tensor: Any) -> tuple[str, float, float]:
    """Of at most `SAMPLE` elements of a tensor on the host: CRC-32 of their bytes with shape and dtype, their sum
    weighted by place (the first counts 1/n, the last 1), and their norm, both in float64."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = "x".join(map(str, tensor.shape))
    if tensor.numel() == 0:
        return f"{zlib.crc32(b''):08x} {dtype} {shape}", 0.0, 0.0
    values = sample_elements(torch, tensor.detach().resolve_conj().resolve_neg(), SAMPLE).contiguous()
    content = (ctypes.c_char * (values.numel() * values.element_size())).from_address(values.data_ptr())
    text = f"{zlib.crc32(content):08x} {dtype} {shape}"
    wide = values.abs().double() if values.is_complex() else values.double()
    places = torch.arange(1, wide.numel() + 1, dtype=torch.float64, device="cpu")
    total = float(torch.dot(wide, places)) / wide.numel()
    return text, _short(total), _short(float(torch.linalg.vector_norm(wide)))


def _short(value: float) -> float:
    return float(f"{value:.{2 * DIGITS}g}")


def _tell_torchscript(torch: Any, patches: Patches, name: str) -> None:
    """Let scripted functions find the operator behind a function that was replaced."""
    table = torch.jit._builtins._get_builtin_table()
    replaced = id(getattr(torch, name))
    table[replaced] = f"aten::{name}"
    patches.on_undo(lambda: table.pop(replaced, None))
