"""Which operators torch_npu refuses because of how a tensor lies in memory, whatever its dtype."""

from __future__ import annotations

SPARSE, CHANNELS_LAST, MADE_CHANNELS_LAST = "sparse", "channels_last", "to channels_last"

_OF_SPARSE = frozenset(
    {
        "mm",
        "addmm",
        "addmm_",
        "bmm",
        "mv",
        "_sparse_mm",
        "_sparse_addmm",
        "_sparse_sparse_matmul",
        "_sparse_softmax",
        "_sparse_log_softmax",
        "sparse_sampled_addmm",
        "sspaddmm",
        "hspmm",
        "_spdiags",
    }
)
_HINTS = {
    SPARSE: "Make the tensor dense first, or write the product with index_select and index_add_.",
    CHANNELS_LAST: "Write .contiguous() before it. `torchport run` does it.",
    MADE_CHANNELS_LAST: "Leave the format out, as `torchport convert` does where it sees the name (TP720).",
}


def is_layout_refused(operator: str, layout: str) -> bool:
    """Whether torch_npu 2.13.0 refuses the operator ("addmm.out") for a tensor with this layout."""
    name = operator.partition(".")[0]
    if layout == SPARSE:
        return name in _OF_SPARSE
    return (layout == CHANNELS_LAST and name == "gelu") or (layout == MADE_CHANNELS_LAST and name == "_to_copy")


def describe_refusal(layout: str) -> str:
    """What it does not do, behind "does not"."""
    if layout == MADE_CHANNELS_LAST:
        return "make a tensor in the order of channels_last"
    return f"take a {'sparse tensor' if layout == SPARSE else 'tensor in the order of channels_last'}"


def suggest_fix(layout: str) -> str:
    """What to do about it."""
    return _HINTS[layout]
