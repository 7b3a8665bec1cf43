"""Calls of old operators that hardware refuses, each beside one that it takes, over all families. By name: torch_npu's queue
would stay in error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, launch

# operator: inputs, outputs, attributes; then what is another in the refused call, and words of its message. A tensor is
# its sizes, with a dtype if it is not float32; "0" to "9" stand for operands by place, first the inputs.
I8, I32, I64, I8U, BOOL, BF16 = torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool, torch.bfloat16
CALLS: dict[str, tuple[list[Any], list[Any], dict[str, Any], dict[str, Any], str]] = {
    "MishGrad": ([(3,), (3,)], [(3,)], {}, {"1": (4,)}, "expected shape and dtype"),
    "MlaProlog": (
        [
            *((3, 1024, BF16), (1024, 1536, BF16), (1536, 192, BF16), (1, 128, 512, BF16), (1024, 576, BF16)),
            *((1536, BF16), (512, BF16), (3, 64, BF16), (3, 64, BF16), (3, I64)),
            *((2, 16, 1, 512, BF16), (2, 16, 1, 64, BF16)),
        ],
        [(3, 1, 512, BF16), (3, 1, 64, BF16), (2, 16, 1, 512, BF16), (2, 16, 1, 64, BF16)],
        {"cache_mode": "PA_BSND"},
        {"cache_mode": "BSND"},
        "allowed are PA_BSND and PA_NZ",
    ),
    "Swish": ([(3,)], [(3,)], {}, {"0": (3, I32), "1": (3, I32)}, "no dtype that the operator takes"),
    "SwishGrad": ([(3,), (3,), (3,)], [(3,)], {}, {"2": (4,)}, "expected shape and dtype"),
    "SiluGrad": ([(3,), (3,)], [(3,)], {}, {"0": (3, I32)}, "the gradient is"),
    "SoftmaxCrossEntropyWithLogits": ([(2, 3), (2, 3)], [(2,), (2, 3)], {}, {"1": (2, 4)}, "labels is"),
    "LayerNormV3": (
        [(2, 3), (3,), (3,)],
        [(2, 3), (2, 1), (2, 1)],
        {"begin_norm_axis": 1},
        {"begin_norm_axis": 2},
        "begin_norm_axis is 2",
    ),
    "Addcmul": ([(3,), (3,), (3,), (1,)], [(3,)], {}, {"1": (3, I64)}, "expected the dtype of"),
    "CTCLossV2": (
        [(4, 2, 3), (2, 2, I64), [4, 3], [2, 1]],
        [(2,), (2, 4, 8)],
        {"blank": 0 + 2 * 3},
        {"2": [4, 5]},
        "inputLengths has the value 5",
    ),
    "LogSoftmaxV2": ([(2, 3)], [(2, 3)], {"axes": [1]}, {"axes": [0, 1]}, "axes has 2 values"),
    "IsFinite": ([(3,)], [(3, BOOL)], {}, {"1": (4, BOOL)}, "expected 3 elements"),
    "NormalizeBatch": (
        [(2, 3, 4), (2, I32)],
        [(2, 3, 4)],
        {"normalize_type": "per_feature"},
        {"normalize_type": "all"},
        "allowed are per_feature",
    ),
    "Pad": ([(2, 3), [1, 0, 0, 2]], [(3, 5)], {}, {"1": [1, 0, 0]}, "3 paddings"),
    "ConfusionTransposeD": (
        [(2, 6)],
        [(6, 2)],
        {"perm": [1, 0], "shape": [2, 6], "transpose_first": False},
        {"perm": [1, 1]},
        "no permutation",
    ),
    "ArgMaxWithValue": ([(2, 3)], [(2, I32), (2,)], {"dimension": 1}, {"dimension": 2}, "dimension is 2"),
    "ArgMinWithValue": ([(2, 3)], [(2, I32), (2,)], {"dimension": 1}, {"dimension": -3}, "dimension is -3"),
    "ArgMaxGrad": ([(2, 3), (2, I32), (2,)], [(2, 3)], {"dimension": 1}, {"1": (3, I32)}, "indices is"),
    "StrideAdd": (
        [(1, 32, 2, 2), (1, 16, 2, 2)],
        [(1, 16, 2, 2)],
        {"x1_c1_offset": 1, "x2_c1_offset": 0, "c1_len": 1},
        {"x1_c1_offset": 2},
        "1 blocks from 2",
    ),
    "MaskedFillRange": (
        [(2, 5), (1, 2, I32), (1, 2, I32), (1,)],
        [(2, 5)],
        {"axis": 1},
        {"1": (1, 3, I32), "2": (1, 3, I32)},
        "a column for each row",
    ),
    "SortV2": ([(2, 5)], [(2, 5)], {"axis": 1}, {"axis": 0}, "allowed is the last"),
    "ReverseV2": ([(2, 5), [1]], [(2, 5)], {}, {"2": (5, 2)}, "expected shape and dtype"),
    "SignBitsPack": ([(16,)], [(2, 1, I8U)], {"size": 2}, {"size": 3}, "does not divide 2 bytes"),
    "SignBitsUnpack": ([(2, I8U)], [(2, 8)], {"size": 2, "dtype": 0}, {"size": 0}, "size is 0"),
    "IFMR": (
        [(9,), (1,), (1,), (4, I32)],
        [(1,), (1,)],
        {
            "min_percentile": 0.9,
            "max_percentile": 0.9,
            "search_range": [0.5, 1.5],
            "search_step": 0.5,
            "with_offset": True,
        },
        {"search_step": 0.0},
        "search_step 0",
    ),
    "ApplyAdamD": ([(3,)] * 3 + [(1,)] * 6 + [(3,)], [(3,)] * 3, {}, {"9": (4,)}, "grad is"),
    "ApplyAdamW": ([(3,)] * 3 + [(1,)] * 7 + [(3,), None], [(3,)] * 3, {}, {"3": (2,)}, "a number is"),
    "ApplyAdamV2": (
        [(3,)] * 3 + [(1,)] * 4 + [(3,)] + [(1,)] * 3,
        [(3,)] * 3,
        {"adam_mode": "mbart_adam"},
        {"adam_mode": "lamb"},
        "allowed are adam and mbart_adam",
    ),
    "DropOutGenMaskV3": ([[9], (1,)], [(9, I8U)], {}, {"2": (8, I8U)}, "a byte for each of 9"),
    "StatelessDropOutGenMask": (
        [[9], (1,), (1, I32), (1, I32), [0, 5]],
        [(16, I8U)],
        {},
        {"5": (8, I8U)},
        "expected 16 elements",
    ),
    "DropOutDoMask": ([(9,), (16, I8U), (1,)], [(9,)], {}, {"1": (8, I8U)}, "expected 16 bytes"),
    "DropOutDoMaskV3": ([(9,), (9, I8U), (1,)], [(9,)], {}, {"1": (8, I8U)}, "expected 9 bytes"),
    "AxpyWithSoftmaxAndDropOutDoMask": (
        [(2, 4), (2, 4), (8, I8U)],
        [(2, 4), (2, 4)],
        {"alpha": 1.0, "input_keep_prob": 0.5, "axis": [-1]},
        {"input_keep_prob": 1.5},
        "input_keep_prob is 1.5",
    ),
    "DropoutWithMulsAndSoftmaxGrad": (
        [(2, 4), (8, I8U), (2, 4)],
        [(2, 4)],
        {"alpha": 1.0, "input_keep_prob": 0.5, "axes": [-1]},
        {"axes": []},
        "axes has 0 values",
    ),
    "StatelessRandomNormalV2": ([[2, 3], [1], [0, 1], (1, I32)], [(2, 3)], {}, {"0": [2, 2]}, "expected 4 elements"),
    "StatelessRandomUniformV2": ([[2, 3], [1], [0, 1], (1, I32)], [(2, 3)], {}, {"4": (6, I32)}, "no dtype"),
    "StatelessBernoulli": ([[6], (1,), (1, I64), (1, I64)], [(6,)], {}, {"1": (2,)}, "prob is"),
    "RandomChoiceWithMask": ([(4, BOOL)], [(2, 1, I32), (2, BOOL)], {"count": 2}, {"0": (4, I32)}, "x is"),
    "SubSample": (
        [(4, I32)],
        [(4, I32)],
        {"batch_size_per_images": 2, "positive_fraction": 0.5},
        {"positive_fraction": 2.0},
        "positive_fraction 2",
    ),
    "GIoU": ([(4, 3), (4, 3)], [(1, 3)], {"is_cross": False}, {"is_cross": True}, "is_cross is true"),
    "DIoU": ([(4, 3), (4, 3)], [(1, 3)], {"is_cross": False}, {"1": (4, 2)}, "gtboxes is"),
    "CIoU": ([(4, 3), (4, 3)], [(1, 3), (1, 3)], {"is_cross": False}, {"mode": "ioa"}, "allowed are iou and iof"),
    "GIoUGrad": ([(3,), (4, 3), (4, 3)], [(4, 3), (4, 3)], {"is_cross": False}, {"0": (2,)}, "the gradient is"),
    "DIoUGrad": ([(3,), (4, 3), (4, 3)], [(4, 3), (4, 3)], {"is_cross": False}, {"4": (4, 2)}, "an output is"),
    "CIoUGrad": (
        [(3,), (4, 3), (4, 3), (1, 3)],
        [(4, 3), (4, 3)],
        {"is_cross": False},
        {"1": (3, 4)},
        "expected [4, any]",
    ),
    "BoundingBoxEncode": ([(3, 4), (3, 4)], [(3, 4)], {}, {"means": [0.5]}, "means has 1 values"),
    "BoundingBoxDecode": (
        [(3, 4), (3, 4)],
        [(3, 4)],
        {"max_shape": [9, 9]},
        {"max_shape": [9]},
        "expected height and width",
    ),
    "Iou": ([(3, 4), (2, 4)], [(2, 3)], {}, {"2": (3, 2)}, "expected [2, 3]"),
    "YoloBoxesEncode": ([(3, 4), (3, 4), (3, I32)], [(3, 4)], {}, {"2": (2, I32)}, "stride is"),
    "RotatedBoxEncode": ([(1, 5, 3), (1, 5, 3)], [(1, 5, 3)], {}, {"weight": [1.0]}, "weight has 1 values"),
    "RotatedBoxDecode": ([(1, 5, 3), (1, 5, 3)], [(1, 5, 3)], {}, {"0": (1, 4, 3)}, "expected [any, 5, any]"),
    "AnchorResponseFlags": (
        [(3, 4)],
        [(8, I8U)],
        {"featmap_size": [2, 2], "strides": [4, 4], "num_base_anchors": 2},
        {"strides": [4, 0]},
        "strides are two numbers",
    ),
    "GridAssignPositive": (
        [(3,), (2, 3), (3, I8U), (3,), (3, I32), (2,), (2, I32), (1, I32)],
        [(3,)],
        {"pos_iou_thr": 0.5, "min_pos_iou": 0.0, "gt_max_assign_all": True},
        {"4": (3, I64)},
        "an index is",
    ),
    "RotatedOverlaps": ([(1, 5, 3), (1, 5, 2)], [(1, 3, 2)], {}, {"2": (1, 2, 3)}, "expected [1, 3, 2]"),
    "RotatedIou": ([(1, 5, 3), (1, 5, 2)], [(1, 3, 2)], {}, {"mode": "iof"}, "mode is not iou"),
    "RotatedNMS": (
        [(3, 5), (3,), (1, I32)],
        [(3, 5), (3, I32)],
        {"iou_threshold": 0.5},
        {"mode": 2},
        "allowed are 0 and 1",
    ),
    "NMSWithMask": ([(3, 5)], [(3, 5), (3, I32), (3, I8U)], {}, {"0": (3, 4), "1": (3, 4)}, "expected [any, 5]"),
    "NonMaxSuppressionV4": ([(3, 4), (3,), (1, I32), (1,), (1,)], [(2, I32), (1, I32)], {}, {"1": (2,)}, "scores is"),
    "BatchMultiClassNonMaxSuppression": (
        [(1, 3, 1, 4), (1, 3, 2)],
        [(1, 2, 4), (1, 2), (1, 2), (1, I32)],
        {"score_threshold": 0.1, "iou_threshold": 0.5, "max_size_per_class": 2, "max_total_size": 2},
        {"iou_threshold": 1.5},
        "iou_threshold is 1.5",
    ),
    "PSROIPoolingV2": (
        [(1, 8, 3, 3), (1, 5, 2)],
        [(2, 2, 2, 2)],
        {"spatial_scale": 1.0, "output_dim": 2, "group_size": 2},
        {"group_size": 128},
        "group_size is 128",
    ),
    "PSROIPoolingGradV2D": (
        [(2, 2, 2, 2), (1, 5, 2)],
        [(1, 8, 3, 3)],
        {"spatial_scale": 1.0, "output_dim": 2, "group_size": 2},
        {"2": (1, 7, 3, 3)},
        "features is",
    ),
    "DeformableOffsets": (
        [(1, 4, 4, 2), (1, 3, 3, 12)],
        [(1, 6, 6, 2)],
        {"ksize": [2, 2], "strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0]},
        {"modulated": False},
        "not NHWC or NCHW, and true",
    ),
    "DeformableOffsetsGrad": (
        [(1, 6, 6, 2), (1, 4, 4, 2), (1, 3, 3, 12)],
        [(1, 4, 4, 2), (1, 3, 3, 12)],
        {"ksize": [2, 2], "strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NHWC"},
        {"2": (1, 3, 3, 8)},
        "offsets is",
    ),
    "LayerNormGrad": ([(2, 3), (2, 3), (2, 1), (2, 1), (3,)], [(2, 3), (3,), (3,)], {}, {"2": (3, 1)}, "variance is"),
    "Conv2DTranspose": (
        [[1, 3, 6, 6], (1, 2, 3, 3), (2, 3, 2, 2)],
        [(1, 3, 6, 6)],
        {"strides": [1, 1, 2, 2], "pads": [0, 0, 0, 0], "dilations": [1, 1, 1, 1]},
        {"output_padding": [0, 0, 1, 0]},
        "1 more is not",
    ),
    "DepthwiseConv2DBackpropInput": (
        [[1, 2, 4, 4], (1, 2, 3, 3), (1, 2, 2, 2)],
        [(1, 2, 4, 4)],
        {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1, 1, 1]},
        {"strides": [1, 1, 2, 2]},
        "at stride 2",
    ),
    "DepthwiseConv2DBackpropFilter": (
        [(1, 2, 4, 4), [2, 1, 3, 3], (1, 2, 2, 2)],
        [(2, 1, 3, 3)],
        {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1, 1, 1]},
        {"3": (2, 2, 3, 3)},
        "in 2 groups is not",
    ),
    "QuantConv2D": (
        [(1, 2, 4, 4, I8), (3, 2, 3, 3, I8), (3, I64), (3, I32)],
        [(1, 3, 2, 2, torch.float16)],
        {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1, 1, 1]},
        {"2": (2, I64)},
        "a word of 64 bits per output channel",
    ),
    "ViewCopy": ([(6,), [2], [3], [1], (4,), [2], [1], [1]], [(6,)], {}, {"5": [3]}, "is copied to"),
    "AttentionLnQKV": (
        [(8, 6)] + [(6, 6)] * 3 + [(6,)] * 5,
        [(8, 6)] + [(2, 3, 4, 2)] * 3 + [(8,)] * 2,
        {"epsilon": 1e-5},
        {"1": (6, 5)},
        "a kernel is",
    ),
    "AttentionQKVGradX": ([(8, 6)] * 4 + [(6, 6)] * 3, [(8, 6)], {}, {"4": (5, 6)}, "do not make a gradient"),
    "AttentionQKVGradW": ([(8, 6)] * 4, [(6, 6)] * 3 + [(6,)] * 3, {}, {"4": (6, 5)}, "kernel's gradient is"),
    "AttentionScoreGrad": (
        [(1, 2, 4, 4)] + [(1, 2, 4, 3)] * 4 + [(1,), (32, I8U)],
        [(4, 6)] * 3,
        {"keep_prob": 1.0},
        {"6": (16, I8U)},
        "drop_mask is",
    ),
    "MultiHeadAttention": (
        [(16, 256)] * 3 + [(256, 256)] * 3 + [(1, 16, 16, 16), (256, 256)],
        [(16, 256), (512, I8U)] + [(1, 16, 16, 16)] * 5 + [(16, 256)],
        {"attn_head_num": 16, "attn_dim_per_head": 16, "src_len": 16, "tgt_len": 16, "keep_prob": 1.0},
        {"src_len": 8},
        "expected multiples of 16",
    ),
    "MultiHeadAttentionGrad": (
        [(16, 256)] * 3 + [(256, 256)] * 4 + [(1, 16, 16, 16)] * 5 + [(16, 256)] * 2,
        [(256, 256)] * 4 + [(16, 256)] * 3 + [(1, 256)] * 4,
        {"attn_head_num": 16, "attn_dim_per_head": 16, "src_len": 16, "tgt_len": 16, "keep_prob": 1.0},
        {"10": (1, 16, 16, 8)},
        "an input is",
    ),
    "TensorEqual": ([(3,), (3,)], [(1, BOOL)], {}, {"1": (4,)}, "the inputs are"),
}


def made(value: Any) -> torch.Tensor | list[int] | None:
    if value is None or isinstance(value, list):
        return value
    sizes = [one for one in value if isinstance(one, int)]
    dtype = next((one for one in value if isinstance(one, torch.dtype)), torch.float32)
    return torch.ones(sizes, dtype=dtype).npu()


@pytest.mark.parametrize("name", CALLS)
def test_a_refused_call_and_its_neighbour(name: str) -> None:
    inputs, outputs, attributes, other, words = CALLS[name]
    operands = [made(value) for value in inputs + outputs]
    status, message = launch(name, operands[: len(inputs)], operands[len(inputs) :], **attributes)
    assert status == 0, message
    changed = [made(other[str(i)]) if str(i) in other else one for i, one in enumerate(operands)]
    more = attributes | {key: value for key, value in other.items() if not key.isdigit()}
    status, message = launch(name, changed[: len(inputs)], changed[len(inputs) :], **more)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


def test_refusals() -> None:
    x, flat = torch.ones(2, 3, 16, 8).npu(), torch.ones(32, 24).npu()
    p, m, s, keep = torch.ones(2, 3, 16, 16).npu(), torch.ones(2, 1, 16, 16).npu(), torch.ones(1).npu(), 0.5
    stays = torch.ones(p.numel(), dtype=torch.uint8).npu()
    call = ("AttentionScore", [x, x, x, m, s, stays], [flat, p])
    assert launch(*call, keep_prob=keep) == (0, "")
    for attributes, words in (({"keep_prob": 2.0}, "keep_prob is 2"), ({"key_transpose": True}, "key_transpose")):
        status, message = launch(*call, **attributes)
        assert status != 0 and words in message, message
    status, message = launch("AttentionScore", [x, x, x, m, s, stays[1:]], [flat, p], keep_prob=keep)
    assert status == INVALID_ARGUMENT and "drop_mask is" in message, message
    status, message = launch("AsStrided", [flat, [3, 3], [300, 1], [0]], [torch.ones(3, 3).npu()])
    assert status == 0, message
    status, message = launch("AsStrided", [flat, [3, 3], [400, 1], [0]], [torch.ones(3, 3).npu()])
    assert status == INVALID_ARGUMENT and "elements 0 to 802" in message, message
