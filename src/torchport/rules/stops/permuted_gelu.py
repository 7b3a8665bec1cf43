"""TP727: GELU of images whose channels are last in memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

_GELU = "torch.nn.functional.gelu"
_MODULE = "torch.nn.GELU"
_LAST = (0, 3, 1, 2)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every GELU of a tensor that is permuted right before it."""
    for call in module.iter_nodes(ast.Call):
        made = isinstance(call.func, ast.Call) and module.resolve_name(call.func.func) == _MODULE
        if (made or module.resolve_name(call.func) == _GELU) and call.args and _is_permuted(module, call.args[0]):
            yield RULE.make_finding(
                module,
                call,
                "torch_npu refuses GELU of a tensor in the order of channels_last",
                hint="Write x.permute(0, 3, 1, 2).contiguous(). `torchport run` does it.",
            )


def _is_permuted(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        values = [binding.value for binding in module.names.find_bindings(node)]
        return bool(values) and all(value is not None and _permutes(value) for value in values)
    return _permutes(node)


def _permutes(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "permute":
        return False
    order = node.args[0].elts if node.args and isinstance(node.args[0], ast.List | ast.Tuple) else node.args
    return tuple(one.value if isinstance(one, ast.Constant) else None for one in order) == _LAST


RULE = Rule(
    code="TP727",
    title="GELU of permuted images",
    safety=Safety.REPORT,
    severity=Severity.ERROR,
    why="torch_npu 2.13.0 makes the output of GELU in the order of its input, and refuses to make that of "
    "channels_last: `Only c10::MemoryFormat::Contiguous is supported`. Other activations are not affected.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html",
    words=(b"gelu",),
    check=check_module,
    rewrites=(),
    reports=("import torch\ny = torch.nn.functional.gelu(x.permute(0, 3, 1, 2))\n",),
    ignores=("import torch\ny = torch.nn.functional.gelu(x.permute(0, 3, 1, 2).contiguous())\n",),
)
