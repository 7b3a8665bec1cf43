"""MindSpore on the virtual NPU: its official wheel, device_target="Ascend".

    import torchport.vnpu
    torchport.vnpu.activate(mindspore=True)
    import mindspore

or `eval "$(torchport vnpu env --mindspore)"` for a shell. Importing this package imports neither MindSpore nor torch.
"""

from torchport.vnpu.mindspore.activation import activate, environment
from torchport.vnpu.mindspore.wheels import RELEASE, find_problems

__all__ = ["RELEASE", "activate", "environment", "find_problems"]
