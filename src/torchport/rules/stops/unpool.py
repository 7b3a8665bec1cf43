"""TP729: unpooling with the indices of a pooling of torch_npu's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.calls import keyword_is
from torchport.source.module import Module

_UNPOOLS = frozenset(
    name for size in (1, 2) for name in (f"torch.nn.MaxUnpool{size}d", f"torch.nn.functional.max_unpool{size}d")
)
_POOLS = ("MaxPool1d", "MaxPool2d", "max_pool1d", "max_pool2d", "max_pool1d_with_indices", "max_pool2d_with_indices")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every unpooling in a file that pools with indices."""
    calls = list(module.iter_nodes(ast.Call))
    if not any(
        (module.resolve_name(call.func) or "").rpartition(".")[2] in _POOLS and keyword_is(call, "return_indices", True)
        for call in calls
    ):
        return
    for call in calls:
        name = module.resolve_name(call.func)
        if name in _UNPOOLS:
            yield RULE.make_finding(
                module,
                call,
                f"{name} does not take the indices that torch_npu's pooling gives",
                hint="They are a mask of int8 there. Pool on the CPU, or use adaptive_max_pool2d or 3-dimensional "
                "pooling, whose indices are numbers.",
            )


RULE = Rule(
    code="TP729",
    title="unpooling with the NPU's indices",
    safety=Safety.REPORT,
    severity=Severity.ERROR,
    why="torch_npu 2.13.0 gives a mask of its own instead of indices from max_pool2d(return_indices=True), which "
    "max_unpool2d, gather and everything else that takes indices refuses or reads wrongly.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool2d.html",
    words=(b"unpool",),
    check=check_module,
    rewrites=(),
    reports=("import torch\np = torch.nn.MaxPool2d(2, return_indices=True)\nu = torch.nn.MaxUnpool2d(2)\n",),
    ignores=("import torch\np = torch.nn.MaxPool3d(2, return_indices=True)\nu = torch.nn.MaxUnpool3d(2)\n",),
)
