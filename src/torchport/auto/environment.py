"""Environment variables of CUDA and NCCL, put over to the NPU's (`knowledge/environment.toml`).

A variable of the NPU that is set already stays. Variables whose meaning differs are put over only where it is known
how: they are listed in `CONVERSIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torchport.knowledge.environment import load_variables

# Keys of PYTORCH_CUDA_ALLOC_CONF that torch_npu's allocator knows too (NPUCachingAllocator.cpp of 2.13).
ALLOCATOR_KEYS = frozenset({"max_split_size_mb", "garbage_collection_threshold", "expandable_segments"})


def find_derived_variables(environ: Mapping[str, str]) -> frozenset[str]:
    """The NPU variables that are what follows from the CUDA ones: they follow these when they change, too.

    Set by us, perhaps in a process before this one, or by somebody who set both to the same.
    """
    ours = {row.npu for row in load_variables().values()} - load_variables().keys()
    alone = {name: value for name, value in environ.items() if name not in ours}
    return frozenset(name for name, value in translate_variables(alone).items() if environ.get(name) == value)


def translate_variables(environ: Mapping[str, str], replaced: frozenset[str] = frozenset()) -> dict[str, str]:
    """The NPU variables that follow from the CUDA ones in `environ`, without those that are set already but for
    those in `replaced`."""
    found = {}
    for name, row in load_variables().items():
        if name not in environ or not row.npu or row.npu == name:
            continue
        if row.npu in environ and row.npu not in replaced:
            continue
        value: str | None = environ[name]
        if row.note:
            convert = CONVERSIONS.get(name)
            value = convert(environ[name]) if convert else None
        if value is not None:
            found[row.npu] = value
    return found


def _devices(value: str) -> str | None:
    """Device numbers in ascending order, which the NPU insists on. CUDA's "" and "-1" hide every device."""
    words = [word.strip() for word in value.split(",") if word.strip()]
    numbers: list[int] = []
    for word in words:
        if not word.isdigit():
            break  # as on CUDA: -1, or what is no number, ends the list
        numbers.append(int(word))
    if not numbers:
        # torch_npu leaves the NPU alone in data loaders for "", not for "-1".
        return "" if not words or words[0].startswith("-") else None
    return ",".join(map(str, sorted(numbers)))


def _allocator(value: str) -> str | None:
    known = [part for part in value.split(",") if part.partition(":")[0].strip() in ALLOCATOR_KEYS]
    return ",".join(known) or None


def _megabytes(value: str) -> str | None:
    """NCCL counts bytes, HCCL megabytes."""
    return str(max(1, math.ceil(int(value) / 2**20))) if value.isdigit() else None


CONVERSIONS: Mapping[str, Callable[[str], str | None]] = {
    "CUDA_VISIBLE_DEVICES": _devices,
    "PYTORCH_CUDA_ALLOC_CONF": _allocator,
    "NCCL_BUFFSIZE": _megabytes,
}
