"""Python's garbage collector, kept from looking where there is none: among the modules of torch in a rehearsal, and
among parsed files.

Importing torch makes 300,000 objects that live as long as the process. The collector walks through them again and again
while torch is imported, and more than once at the end of the process: together two fifths of the processor time of
`import torch, torch._dynamo` (1.9 s in place of 2.8 s, torch 2.13, Python 3.11). A port starts at least three such
processes. A run on hardware is left as it is.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from types import ModuleType

from torchport.on_import import around_import


@functools.cache
def spare_modules() -> None:
    """Collect no garbage while torch is imported, and never again what is there by then; the script's own garbage is
    collected as ever. torch._dynamo comes later, when the script has objects of its own, which have to stay in sight:
    no garbage is collected while it is imported. Nothing happens if torch is there already, or the second time."""
    around_import("torch", lambda execute: _without_collector(execute, after=gc.freeze))
    around_import("torch._dynamo", _without_collector)


def spare_all() -> None:
    """Collect nothing of what there is now: files that only garbage holds open are not flushed at the end."""
    gc.freeze()


@contextlib.contextmanager
def pause_collection() -> Iterator[None]:
    """Collect no garbage in this block, which makes many objects and no cycles of them: of a project with 1,000 parsed
    files, looking for cycles is two thirds of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _without_collector(execute: Callable[[], ModuleType], after: Callable[[], object] = lambda: None) -> None:
    with pause_collection():
        execute()
        after()
