"""What the port needs in its recorded process: the patches that `torchport run` would make for a converted script."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from torchport.auto.compilers import NO_INDUCTOR, patch_compile
from torchport.patches import Patches


def apply(torch: ModuleType, tell: Callable[[str], object] = lambda text: None) -> Patches:
    """Patch the imported `torch`: torch.compile runs without inductor where triton-ascend is missing.

    `tell` gets a sentence for people for each call that was given another backend. `undo()` of what is returned takes
    everything back.
    """
    patches = Patches()
    patch_compile(torch, patches, lambda: tell(NO_INDUCTOR))
    return patches
