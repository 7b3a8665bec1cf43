"""What Python runs at each start under `torchport run` and in an environment with `torchport vnpu enable`: wait for
torch, then activate the NPU, and with TORCHPORT_AUTO=1 patch torch for CUDA scripts; wait for torchvision, too."""

import os

from torchport.cuda_builds import mend_when_imported
from torchport.on_import import before_import


def _activate() -> None:
    from torchport import vnpu  # here: programs that never import torch must not pay for it

    if vnpu.detect().kind is not vnpu.Kind.NONE:  # else torch_npu itself says what it misses
        vnpu.activate()


def activate_with_torch() -> None:
    """Activate the NPU backend of this machine when torch is imported, if there is one by then."""
    mend_when_imported()
    if os.environ.get("TORCHPORT_AUTO") != "1":
        before_import(("torch", "torch_npu"), _activate)
        return
    import torchport.auto  # noqa: F401  importing it is what it is for
