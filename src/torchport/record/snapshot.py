"""What a run starts from beside its weights and batches: random generators, versions, what the environment says."""

from __future__ import annotations

import os
import platform
import random
import sys
from typing import Any

# Variables whose names begin so change what is computed or how; others are nobody's business but the user's.
PREFIXES = (
    "ACL_",
    "ASCEND_",
    "ATEN_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "HCCL_",
    "INF_NAN_",
    "KMP_",
    "MKL_",
    "NCCL_",
    "NPU_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYTHONHASHSEED",
    "PYTORCH_",
    "TASK_QUEUE_ENABLE",
    "TORCH_",
    "VNPU_",
)
PACKAGES = ("torch", "torch_npu", "numpy", "torchvision", "transformers")


def host_generators(torch: Any) -> dict[str, Any]:
    """The states of Python's, numpy's and torch's random generators as the script would get them, those of numpy where
    it is imported. `torch.load(weights_only=True)` reads them."""
    found: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, words, *rest = numpy.random.get_state()
        found["numpy"] = (str(name), [int(word) for word in words], *map(_plain, rest))
    return found


def read_generator_states(torch: Any) -> dict[str, Any]:
    """Those of the host, and that of an accelerator ("npu:0": state) where it is in use."""
    found = host_generators(torch)
    for kind in ("cuda", "npu"):
        module = vars(torch).get(kind)  # getattr for what torch lacks takes long
        if module is not None and module.is_initialized():
            found[f"{kind}:{module.current_device()}"] = module.get_rng_state()
    return found


def collect_environment(torch: Any) -> dict[str, Any]:
    """Versions, variables of the environment by name (PREFIXES), and what torch is told about numbers: plain JSON."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)}
    return {
        "versions": versions,
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "variables": variables,
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)
