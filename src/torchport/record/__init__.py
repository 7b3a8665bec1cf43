"""What a training run leaves behind: the loss of each step, step times, seeds, the weights it started from.

`recording` is the format and its reader (no torch), `recorder` watches a live process, `equal` makes two runs
start from the same numbers, `draws` gives both the same random ones, `reference` is a CUDA script's run on the CPU.
`session` puts them together in each process of a run, which Python starts through `start/sitecustomize.py`.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torchport.record.operators.block import Block


class _Callable(ModuleType):
    """This package, which can be called: `with torchport.record(DIR):` records the operators of the block."""

    def __call__(self, *args: Any, **kwargs: Any) -> Block:
        from torchport.record.operators.block import Block  # here: it needs numpy

        return Block(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
