"""The virtual NPU seen from Python: find it, load it, describe it.

    import torchport.vnpu
    torchport.vnpu.activate()
    import torch                      # torch.npu works now, on the CPU

The only package that knows the VNPU_* environment variables (`torchport.vnpu.variables`). Importing it
imports neither torch nor any shared library.
"""

from torchport.vnpu.activation import activate, environment
from torchport.vnpu.backend import Backend, Kind, detect, library_directory
from torchport.vnpu.isolation import environment_without
from torchport.vnpu.launches import launches, launches_by_device
from torchport.vnpu.operators import operators
from torchport.vnpu.sums import SUM_ORDER, choose_sum_order

__all__ = [
    "SUM_ORDER",
    "Backend",
    "Kind",
    "activate",
    "choose_sum_order",
    "detect",
    "environment",
    "environment_without",
    "launches",
    "launches_by_device",
    "library_directory",
    "operators",
]
