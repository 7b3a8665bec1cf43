"""Python's garbage collector in a rehearsal: it does not look for garbage among the modules of torch.

Importing torch makes 300,000 objects that live as long as the process. The collector walks through them again and again
while torch is imported, and more than once at the end of the process: together two fifths of the processor time of
`import torch, torch._dynamo` (1.9 s in place of 2.8 s, torch 2.13, Python 3.11). A port starts at least three such
processes. A run on hardware is left as it is.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
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


def _without_collector(execute: Callable[[], ModuleType], after: Callable[[], object] = lambda: None) -> None:
    on = gc.isenabled()
    gc.disable()
    try:
        execute()
        after()
    finally:
        if on:
            gc.enable()
