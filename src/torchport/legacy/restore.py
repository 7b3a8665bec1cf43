"""Puts the old names back into torch once it is imported."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torchport.on_import import after_import
from torchport.patches import Patches

TEST_CASES = "torch.testing._internal.common_utils"

_patches = Patches()
_cancel: list[Callable[[], None]] = []


def install() -> None:
    """Restore the old names, now or when torch is imported; calling it again does nothing."""
    if not _cancel:
        _cancel.append(after_import("torch", _restore))
        _cancel.append(after_import(TEST_CASES, _accept_prec))


def uninstall() -> None:
    """Take everything away again; harmless when not installed."""
    while _cancel:
        _cancel.pop()()
    _patches.undo()


def _restore(torch: ModuleType) -> None:
    from torchport.legacy import dumper, profiling  # here: they import torch

    _patches.set(torch.utils, "dumper", dumper.Dumper)  # the GPU's and the CPU's side of a comparison dumps likewise
    npu = getattr(torch, "npu", None)
    if npu is None:
        return  # torch without torch_npu
    import torch_npu

    for name in profiling.__all__:
        if not hasattr(npu, name):
            _patches.set(npu, name, getattr(profiling, name))
    profiling.patch_autograd(_patches)
    for name in dir(torch_npu):
        if name.startswith("npu_"):  # torch_npu 2.13 has put a function there that refuses
            _patches.set(torch, name, getattr(torch_npu, name))
    for name in ("set_dump", "finalize_dump"):
        _patches.wrap(npu, name, _after_queued)
    if not hasattr(torch.Tensor, "npu_format_cast"):
        _patches.set(torch.Tensor, "npu_format_cast", _format_cast)


def _after_queued(original: Callable[..., None]) -> Callable[..., None]:
    """A dump begins and ends between operators as written: torch_npu 2.13 launches them from a queue of its own."""

    def change(*args: Any) -> None:
        import torch

        torch.npu.synchronize()
        original(*args)

    return change


def _format_cast(tensor: Any, acl_format: Any) -> Any:
    """The tensor in another memory format, by number (0: NCHW, 2: ND, 3: NC1HWC0, 29: FRACTAL_NZ) or as a tensor."""
    import torch_npu

    wanted = acl_format if isinstance(acl_format, int) else torch_npu.get_npu_format(acl_format)
    return torch_npu.npu_format_cast(tensor, wanted)


def _accept_prec(module: Any) -> None:
    def assert_equal(original: Any) -> Any:
        def compare(this: Any, x: Any, y: Any, *args: Any, prec: float | None = None, **kwargs: Any) -> None:
            if prec is not None:
                # As torch 1.5 did: an absolute tolerance, and values, whatever they are kept in.
                x, y = (value.cpu().numpy() if hasattr(value, "cpu") else value for value in map(_plain, (x, y)))
                kwargs |= {"atol": prec, "rtol": 0.0, "exact_dtype": False}
            original(this, x, y, *args, **kwargs)

        return compare

    _patches.wrap(module.TestCase, "assertEqual", assert_equal)


def _plain(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value
