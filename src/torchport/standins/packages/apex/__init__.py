"""Stand-in for NVIDIA's apex: amp, optimizers, normalization, parallel and multi_tensor_apply.

Also has the optimizers of apex's Ascend build (`apex.optimizers.NpuFusedSGD` and so on). Not here: contrib,
fp16_utils, mlp, RNN, transformer, and CUDA kernels other than those of `amp_C` that are often called.
"""

from . import amp, multi_tensor_apply, normalization, optimizers, parallel

__all__ = ["amp", "multi_tensor_apply", "normalization", "optimizers", "parallel"]
