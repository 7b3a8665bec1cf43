"""torch.compile in the reference: what it returns on a GPU, run without a compiler.

A compiler would read the patches of this package, and inductor would ask the CPU for what only a GPU has. Whatever a
compiler does is not part of what the script computes.
"""

from __future__ import annotations

from typing import Any

from torchport.patches import Patches


def patch_torch_compile(torch: Any, patches: Patches) -> None:
    """Patch torch.compile: a module gives an OptimizedModule with its names (`_orig_mod.`), a function one that calls
    it from the same place in torch."""

    def compile_(original: Any) -> Any:
        def call(model: Any = None, **kwargs: Any) -> Any:
            if model is None:
                return lambda function: call(function, **kwargs)
            if not callable(model):
                return original(model, **kwargs)  # raises
            return eager_module(torch, model) if isinstance(model, torch.nn.Module) else torch._dynamo.disable(model)

        return call

    patches.wrap(torch, "compile", compile_)


def eager_module(torch: Any, module: Any) -> Any:
    """`module` as torch.compile returns it, run as it is. Imports torch._dynamo, which takes two seconds."""
    from torch._dynamo.eval_frame import DisableContext, OptimizedModule

    if isinstance(module, OptimizedModule):
        return module
    return OptimizedModule(module, DisableContext())
