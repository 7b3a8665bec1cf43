"""TP728: derivatives forward over reverse: `torch.func.hessian`, `jvp(grad(f))`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

_SPACES = ("torch.func.", "functorch.", "torch._functorch.eager_transforms.")
_HESSIAN = frozenset(f"{space}hessian" for space in _SPACES)
_FORWARD = frozenset(f"{space}{name}" for space in _SPACES for name in ("jvp", "jacfwd", "linearize"))
_REVERSE = frozenset(f"{space}{name}" for space in _SPACES for name in ("grad", "jacrev", "vjp", "grad_and_value"))


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every derivative that is taken forward through one that is taken in reverse."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func)
        if name in _HESSIAN or (name in _FORWARD and call.args and _is_reverse(module, call.args[0])):
            yield RULE.make_finding(
                module,
                call,
                "derivatives forward over reverse may be 0 on an NPU, without an error",
                hint="Take both in reverse, torch.func.jacrev(torch.func.jacrev(f)), or use torch.autograd.functional. "
                "`torchport run` computes them right.",
            )


def _is_reverse(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        values = [binding.value for binding in module.names.find_bindings(node)]
        return any(isinstance(value, ast.Call) and module.resolve_name(value.func) in _REVERSE for value in values)
    return isinstance(node, ast.Call) and module.resolve_name(node.func) in _REVERSE


RULE = Rule(
    code="TP728",
    title="derivatives forward over reverse",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="The backward of torch_npu 2.13.0's matmul and linear has no forward derivative: where an operand of a product "
    "has other than two dimensions, the part of the second derivative that goes through it is silently 0.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.func.hessian.html",
    words=(b"hessian", b"jvp", b"jacfwd", b"linearize"),
    check=check_module,
    rewrites=(),
    reports=("import torch\nh = torch.func.hessian(f)(x)\n",),
    ignores=("import torch\nh = torch.func.jacrev(torch.func.jacrev(f))(x)\n",),
)
