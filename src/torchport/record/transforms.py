"""Gradients by function transforms (`torch.func.grad`, `vmap(grad(...))`), which no `backward()` tells of."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from torchport.patches import Patches
from torchport.record import releases

# The functions that the transforms of torch.func call (torch/_functorch, 2.1 to 2.13), with their module, and whether
# they differentiate.
STEPS = (
    ("torch._functorch.apis", "vmap_impl", False),
    ("torch._functorch.eager_transforms", "grad_impl", True),
    ("torch._functorch.eager_transforms", "grad_and_value_impl", True),
)


class Transforms:
    """Calls `differentiated(results)` after each outermost transform in which something was differentiated, with the
    tensors that it gives."""

    def __init__(self, torch: Any, differentiated: Callable[[list[Any]], None]) -> None:
        self._torch = torch
        self._differentiated = differentiated
        self._seen = False

    def install(self, patches: Patches) -> None:
        """Watch the transforms until `patches` are undone."""
        for module, name, differentiates in STEPS:
            owner = importlib.import_module(module)
            if hasattr(owner, name):
                patches.wrap(owner, name, functools.partial(self._wrap, differentiates))

    def _wrap(self, differentiates: bool, original: Any) -> Any:
        # Under its own name, and with nothing else for dynamo to trace.
        @functools.wraps(original)
        def transform(*args: Any, **kwargs: Any) -> Any:
            if releases.is_compiling(self._torch):
                return original(*args, **kwargs)
            if releases.is_within_transform(self._torch):
                self._seen = self._seen or differentiates
                return original(*args, **kwargs)
            self._seen = differentiates
            results = original(*args, **kwargs)
            if self._seen:
                self._seen = False
                leaves = self._torch.utils._pytree.tree_leaves(results)
                tensors = [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor) and leaf.is_floating_point()]
                if tensors:
                    self._differentiated(tensors)
            return results

        return transform
