"""GELU in a reference run: the tanh form, as an NPU computes it.

aclnnGelu and aclnnGeluBackward are x / (1 + exp(-1.5957691 (x + 0.044715 x^3))) (CANN ops-nn, activation/gelu), and
torch_npu 2.13 calls them whatever `approximate` says (op-plugin, GeluBackwardKernelNpuOpApi.cpp). A comparison would
find that known difference in every model with torch's default form, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchport.patches import Patches

# The largest distance of the two forms, at x = 2.70 and -2.70, and of their derivatives, at 2.02 and -2.02.
LARGEST, LARGEST_OF_GRADIENT = 4.8e-4, 8.7e-4
# How the note of a recording begins whose CPU did so.
NOTE = "GELU was computed in its tanh form"


def replace_gelu_kernels(torch: Any, key: str, patches: Patches, note: Callable[[str], None]) -> None:
    """Replace the kernels of the dispatch key ("CPU", "CUDA") until `patches` are undone; `note` is told once, when the
    script asks for the form with erf."""
    told = False

    def tell(approximate: str) -> None:
        nonlocal told
        if approximate == "none" and not told:
            told = True
            note(
                f"{NOTE}, as an NPU computes it whatever `approximate` says: it differs "
                f"from the form that the script asks for by {LARGEST:.1e} at most, its derivative by "
                f"{LARGEST_OF_GRADIENT:.1e}"
            )

    # The forms with `out` stay torch's own.
    def gelu(x: Any, *, approximate: str = "none") -> Any:
        tell(approximate)
        return torch.ops.aten.gelu.out(x, approximate="tanh", out=torch.empty_like(x))

    def gelu_(x: Any, *, approximate: str = "none") -> Any:
        return x.copy_(gelu(x, approximate=approximate))

    def gelu_backward(gradient: Any, x: Any, *, approximate: str = "none") -> Any:
        result = torch.empty_like(x, dtype=torch.result_type(gradient, x))
        return torch.ops.aten.gelu_backward.grad_input(gradient, x, approximate="tanh", grad_input=result)

    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(library._destroy)
    for function in (gelu, gelu_, gelu_backward):
        library.impl(function.__name__, function, key)
