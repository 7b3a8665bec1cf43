"""The operators that the reference computes in float32 where the script has half precision."""

from __future__ import annotations

# For each result the argument whose dtype it has: a position, -1 for the first in half precision, None for one that
# stays in float32 (a statistic that the backward pass takes). Empty: -1 for all.
Outputs = tuple[int | None, ...]

_PRODUCTS = (
    "mm", "mm.out", "addmm", "addmm.out", "addmm_", "bmm", "bmm.out", "baddbmm", "baddbmm.out", "baddbmm_", "addbmm",
    "addbmm.out", "addbmm_", "addmv", "addmv.out", "addmv_", "dot", "vdot", "convolution",
)  # fmt: skip

OPERATORS: dict[str, Outputs] = {
    **dict.fromkeys(_PRODUCTS, ()),
    "convolution_backward": (1, 2, 2),
    "_scaled_dot_product_flash_attention_for_cpu": (-1, None),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (-1, -1, -1),
}
