"""The operators that the reference computes in float32 where the script has half precision.

Found by comparing PyTorch's operator database in float16 and bfloat16 with itself in float32: those that the CPU
refuses and a GPU takes, and those that it rounds more than once; with them all products and convolutions, whose
precision depends on the processor, and normalisations, whose statistics the CPU may round.
"""

from __future__ import annotations

# For each result the argument whose dtype it has: a position, -1 for the first in half precision, None for one that
# stays in float32 (a statistic that the backward pass takes). Empty: -1 for all.
Outputs = tuple[int | None, ...]

_ALL_ROUNDED = (
    "mm",
    "mm.out",
    "addmm",
    "addmm.out",
    "addmm_",
    "bmm",
    "bmm.out",
    "baddbmm",
    "baddbmm.out",
    "baddbmm_",
    "addbmm",
    "addbmm.out",
    "addbmm_",
    "addmv",
    "addmv.out",
    "addmv_",
    "dot",
    "vdot",
    "convolution",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "avg_pool3d",
    "avg_pool3d_backward",
    "_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward",
    "multi_margin_loss",
    "multi_margin_loss_backward",
    "rrelu_with_noise",
    "upsample_linear1d",
    "upsample_linear1d_backward",
    "upsample_bilinear2d",
    "upsample_bilinear2d_backward",
    "upsample_trilinear3d",
    "upsample_trilinear3d_backward",
    "upsample_bicubic2d",
    "upsample_bicubic2d_backward",
    "_upsample_bilinear2d_aa",
    "_upsample_bilinear2d_aa_backward",
    "_upsample_bicubic2d_aa",
    "_upsample_bicubic2d_aa_backward",
    "_log_softmax",
    "avg_pool2d_backward",
    "_adaptive_avg_pool2d_backward",
    "col2im",
    # Sums over repeated indices.
    "embedding_dense_backward",
    "_embedding_bag_dense_backward",
    "_index_put_impl_",
    "index_add",
    "index_add_",
    "scatter_add",
    "scatter_add_",
)

OPERATORS: dict[str, Outputs] = {
    **dict.fromkeys(_ALL_ROUNDED, ()),
    "convolution_backward": (1, 2, 2),
    "_scaled_dot_product_flash_attention_for_cpu": (-1, None),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (-1, -1, -1),
    "grid_sampler_2d_backward": (1, 2),
    "grid_sampler_3d_backward": (1, 2),
    "multilabel_margin_loss_forward": (0, 0),
    "multilabel_margin_loss_backward": (),
    "native_batch_norm": (0, None, None),
    "_native_batch_norm_legit": (0, None, None),
    "_native_batch_norm_legit.no_stats": (0, None, None),
    "native_batch_norm_backward": (1, 2, 2),
    "native_layer_norm": (0, None, None),
    "native_layer_norm_backward": (1, 5, 6),
    "native_group_norm": (0, None, None),
    "native_group_norm_backward": (1, 4, 4),
}

# Arguments that an operator updates without saying so in its schema.
UPDATED = frozenset({"running_mean", "running_var"})
