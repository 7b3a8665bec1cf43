"""Which call of one recording is which of another.

Two devices call different operators for one line of a model: attention is fused or written out, a product is taken
apart or not, an optimizer calls one operator for all parameters or one for each. So forward calls are aligned by the
module that ran and the operator, without what only moves numbers (views, copies, memory), and calls of the backward
pass by the forward call whose gradient they are, which autograd's sequence number says. Between a CPU and an NPU only
operators that both call alike count as missing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from torchport.record.operators.reading import Call

# What moves numbers or makes none.
MOVES = frozenset(
    {
        "view",
        "_unsafe_view",
        "reshape",
        "t",
        "transpose",
        "permute",
        "expand",
        "select",
        "slice",
        "unsqueeze",
        "squeeze",
        "detach",
        "alias",
        "as_strided",
        "clone",
        "_to_copy",
        "copy_",
        "contiguous",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "fill_",
        "zero_",
        "lift_fresh",
        "_local_scalar_dense",
        "resize_",
        "set_",
        "arange",
        "scalar_tensor",
        "new_zeros",
        "new_ones",
        "new_full",
        "split",
        "split_with_sizes",
        "unbind",
        "chunk",
        "narrow",
        "stack",
        "cat",
        "item",
        "is_pinned",
        "_pin_memory",
        "_reshape_alias",
        "expand_as",
        "slice_backward",
        "select_backward",
        "npu_format_cast",
        "npu_dtype_cast",
        "_npu_dtype_cast",
        "diagonal",
        "unfold",
        "movedim",
    }
)
# Operators that the CPU and an NPU call alike, so that one which has no partner is missing.
ALIKE = frozenset(
    {
        "relu",
        "relu_",
        "gelu",
        "silu",
        "sigmoid",
        "tanh",
        "leaky_relu",
        "elu",
        "hardswish",
        "hardtanh",
        "softplus",
        "mish",
        "native_layer_norm",
        "native_batch_norm",
        "native_group_norm",
        "convolution",
        "embedding",
        "max_pool2d_with_indices",
        "avg_pool2d",
        "_log_softmax",
        "nll_loss_forward",
        "mse_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "masked_fill",
        "cumsum",
        "topk",
        "sort",
    }
)


def strip_namespace(call: Call) -> str:
    """The operator's name without its namespace."""
    return call.name.partition("::")[2]


def select_significant_forward(calls: Sequence[Call], *, alike: bool) -> list[Call]:
    """The forward calls that compute something; with `alike` only those that all devices call alike."""
    return [
        call
        for call in calls
        if call.phase == "forward"
        and strip_namespace(call) not in MOVES
        and not call.name.startswith(("module::", "c10d::"))
        and (not alike or strip_namespace(call) in ALIKE)
    ]


def significant_of(calls: Sequence[Call]) -> list[Call]:
    """The calls of any one pass that compute something."""
    return [
        call
        for call in calls
        if strip_namespace(call) not in MOVES and not call.name.startswith(("module::", "c10d::"))
    ]


Anchors = tuple[Mapping[int, int], Mapping[int, int]]


def match_sequence_numbers(one: Sequence[Call], other: Sequence[Call]) -> Anchors:
    """By autograd's sequence number of each side, the number of the pair of forward calls that it belongs to: the same
    number on both sides for gradients of the same call. `one` and `other` are all calls of a step."""
    forward = [[call for call in significant_of(calls) if call.phase == "forward"] for calls in (one, other)]
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for number, pair in enumerate(match_calls(*forward)):
        if pair[0] is None or pair[1] is None:
            continue
        for known, call in zip(found, pair, strict=True):
            if call is not None and call.sequence >= 0:
                known.setdefault(call.sequence, number)
    return found


def match_calls(
    one: Sequence[Call], other: Sequence[Call], *, of: Anchors = ({}, {})
) -> Iterator[tuple[Call | None, Call | None]]:
    """Pairs in order; None beside a call that the other recording does not have. With `of` gradients of different
    forward calls are no pair."""
    first, second = (
        [f"{call.module} {call.name} {known.get(call.sequence, '')}" for call in calls]
        for calls, known in zip((one, other), of, strict=True)
    )
    for tag, i, j, m, n in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(one[i:j], other[m:n], strict=True)
        else:
            yield from ((call, None) for call in one[i:j])
            yield from ((None, call) for call in other[m:n])
