"""CUDA scripts on the CPU, unmodified: the reference side of a port.

`apply_reference_patches(torch)` makes the names of `torch.cuda` and `torch.accelerator` answer for CUDA devices that
are the CPU, and sends everything that is asked for on one to the CPU. A `torch.device("cuda")` keeps its name, so that
a script takes the same branches as on a GPU; tensors say that they are on the CPU.

Mixed precision is the script's own: autocast casts what it casts on a GPU, GradScaler scales, and what the CPU
computes badly in half precision is computed in float32 and rounded once. torch.compile gives what it gives on a GPU,
run without a compiler.

Moving to the device and back copies, as on a GPU: a script that changes the copy in place leaves the original
alone. Tensors that require grad stay what they are.

`make_reference_environment`, `hide_npu` and `describe_npu_use` keep the process away from an NPU and tell whether it
stayed away.

Not emulated: CUDA graphs, custom CUDA kernels, NCCL calls other than through torch.distributed (which gets
gloo).
"""

from __future__ import annotations

from types import ModuleType

from torchport.patches import Patches
from torchport.record.reference.absence import describe_npu_use, hide_npu, make_reference_environment
from torchport.record.reference.places import MOVE_TO, TAKE_DEVICE, to_cpu

__all__ = [
    "MOVE_TO",
    "TAKE_DEVICE",
    "apply_reference_patches",
    "describe_npu_use",
    "hide_npu",
    "make_reference_environment",
    "to_cpu",
]


def apply_reference_patches(torch: ModuleType, mixed_precision: bool = True) -> Patches:
    """Patch the imported `torch`; `undo()` of what is returned takes everything back.

    Without `mixed_precision`, autocast and GradScaler for CUDA do nothing: everything is computed in the dtypes that
    the script gives to its tensors.

    Raises RuntimeError where CUDA is available: the script needs no help there.
    """
    # Here, so that what only wants to hide the NPU loads none of it.
    from torchport.record.reference import (
        accelerator,
        compiling,
        generators,
        half,
        loading,
        parallel,
        pinning,
        places,
        precision,
        queries,
    )

    if torch.cuda.is_available():
        raise RuntimeError("CUDA is available on this machine: run the script as it is")
    patches = Patches()
    try:
        queries.patch_cuda_queries(torch, patches)
        accelerator.patch_accelerator(torch, patches)
        places.patch_devices(torch, patches)
        pinning.patch_pinning(torch, patches)
        generators.patch_generators(torch, patches)
        if mixed_precision:
            precision.patch_autocast(torch, patches, half.patch_half_kernels(torch, patches))
        else:
            precision.switch_off(torch, patches)
        compiling.patch_torch_compile(torch, patches)
        loading.patch_torch_load(torch, patches)
        parallel.patch_parallel(torch, patches)
    except BaseException:
        patches.undo()
        raise
    return patches
