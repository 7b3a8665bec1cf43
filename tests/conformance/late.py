"""Whether an operator refuses in its first phase what its kernel cannot compute: for judge.py, under "refusals".

What a kernel finds comes when the call is long over, and ends the program's work on the NPU, where hardware's first phase
raises an error that can be caught. So an operator is called with what OpInfo says must be refused, and with its samples
changed in one place: dimensions, dtype, layout, an emptied tensor, another number. Every call may pass or be refused. What
only the values in a tensor can tell, such as an index out of range, is for the kernel to find: it says that hardware
hides it.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from verdicts import kernel_failure

DTYPES = (torch.float32, torch.int64)
SAMPLES = 2  # of each dtype
CALLS = 120  # of one operator: some have a sample of twenty arguments
# One place of an operator's arguments, changed. Shapes beside which another tensor no longer fits, dtypes that differ
# from the others', layouts that a kernel might not expect.
CHANGES: dict[type, tuple[Callable[[Any], Any], ...]] = {
    torch.Tensor: (
        lambda t: t[:0] if t.dim() else t.expand(0),
        lambda t: t[..., :0] if t.dim() else t.reshape(1, 1),
        lambda t: t.unsqueeze(0),
        lambda t: t.flatten(),
        lambda t: t.flatten()[0] if t.numel() else t,
        lambda t: torch.cat([t, t], -1) if t.dim() else t,
        lambda t: t.transpose(0, -1) if t.dim() else t,
        lambda t: t.to(torch.float16),
        lambda t: t.to(torch.int32),
        lambda t: t.to(torch.bool),
        lambda t: t.neg() if t.dtype != torch.bool else ~t,
    ),
    bool: (lambda b: not b,),
    int: (lambda i: -1, lambda i: 0, lambda i: i + 1, lambda i: 99, lambda i: -99),
    float: (lambda f: -1.0, lambda f: 0.0, lambda f: float("inf"), lambda f: float("nan")),
    str: (lambda s: "", lambda s: s + "x"),
}
# torch_npu 2.13 takes as many sizes from a list as it expects, without asking how many there are (op-plugin:
# max_pool3d_output_size), and dies: before CANN is called.
READS_PAST_A_LIST = frozenset(("nn.functional.adaptive_max_pool3d",))
# Nor does it ask whether a convolution has groups before it divides by their number.
NO_GROUPS = {"groups": 0}
# What only the values in a tensor tell. Hardware hides the first; a write past the end destroys other tensors there.
OF_VALUES = re.compile(
    "hardware hides this|[Ii]ndex -?[0-9]+ is out of bounds|tried to access index|'target' is out of range"
    "|has values outside of|has the weight|positive weights in row|not positive-definite|is singular|source < number of ones in mask"
)


def inputs(op: OpInfo) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Arguments on the CPU."""
    if op.error_inputs_func is not None and op.name not in READS_PAST_A_LIST:
        for wrong in op.error_inputs("cpu"):
            sample = wrong.sample_input
            yield (sample.input, *sample.args), sample.kwargs
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
            for arguments, options in changed(((sample.input, *sample.args), sample.kwargs)):
                if NO_GROUPS.items().isdisjoint(options.items()):
                    yield arguments, options


def changed(arguments: Any) -> Iterator[Any]:
    """`arguments` with one leaf changed, in every way that there is."""
    leaves, shape = tree_flatten(arguments)
    for place, leaf in enumerate(leaves):
        for change in CHANGES.get(type(leaf), ()):
            try:
                other = change(leaf)
            except (RuntimeError, TypeError):  # not of this tensor
                continue
            yield tree_unflatten([*leaves[:place], other, *leaves[place + 1 :]], shape)


def on_npu(value: Any) -> Any:
    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().npu() if leaf.layout == torch.strided else leaf
        return "npu" if isinstance(leaf, torch.device) or leaf == "cpu" else copy.copy(leaf)

    return tree_map(one, value)


def described(arguments: Any) -> str:
    def one(leaf: Any) -> str:
        if isinstance(leaf, torch.Tensor):
            return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        return repr(leaf)

    return ", ".join(one(leaf) for leaf in tree_flatten(arguments)[0])[:200]


class LostError(Exception):
    """A call has rightly cost the process its NPU: with which one to go on elsewhere."""


def judge(
    op: OpInfo, first: int, log: Callable[[], str], on_npu_only: Callable[[], AbstractContextManager[object]]
) -> tuple[str, str]:
    """Status and reason, from the call `first` on; `log` reads what torch_npu and the virtual NPU have said. What
    torch_npu would compute on the CPU raises in `on_npu_only`: those kernels are not ours. Raises LostError."""
    tried = first
    for at, (arguments, options) in enumerate(itertools.islice(inputs(op), CALLS)):
        if at < first:
            continue
        try:
            given, named = on_npu((arguments, options))
        except (RuntimeError, TypeError):  # nothing that an NPU could hold
            continue
        tried += 1
        problem: Exception | None = None
        try:
            with on_npu_only():
                op(*given, **named)
            torch.npu.synchronize()
        except Exception as refusal:
            problem = refusal
        failure = kernel_failure(str(problem), f"{log()}\n{problem}")
        if failure and not OF_VALUES.search(failure):
            return "FAIL", f"{described((arguments, options))}: {' '.join(failure.split())}"
        if failure:
            raise LostError(at + 1)
    return ("PASS", "") if tried else ("NOT_OFFERED", "op_db: no inputs")
