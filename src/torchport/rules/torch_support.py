"""TP701 to TP703: functions and modules of torch that torch_npu computes on the CPU or refuses, and unknown names.

Nothing here has a fix; `convert` reports what is refused alone, `analyze` all of it. Only names that are proven to be
torch's count, and only what was measured (`knowledge.support`); a method that runs on whatever a variable holds is
nothing to report.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge import support
from torchport.knowledge.support import How
from torchport.rules import Rule, Style
from torchport.source.module import Module

NAMES_TORCH = re.compile(rb"\btorch\b")
_OURS = ("torch.cuda", "torch.npu", "torch.backends")  # TP101 knows them
_GUARDS = ("builtins.hasattr", "builtins.getattr")


def check_module(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """A finding for each use of a name that torch_npu does not simply compute; imports count as uses."""
    guarded = _guarded(module)
    for node, name in _uses(module):
        if name.startswith(_OURS) or _is_tried(module, node):
            continue
        found = support.find_measured_api(name)
        if found is not None and found.how is How.FALLBACK:
            yield _on_cpu(module, node, name, found.on_cpu)
        elif found is not None and found.is_refused:
            yield REFUSED.make_finding(
                module, node, f"{name} is refused by torch_npu {support.read_measured_versions()[1]}", hint=_REFUSED
            )
        elif name in support.load_removed_names() or (
            support.has_public_name(name) is False and name.split(".")[-1] not in guarded
        ):
            yield _unknown(module, node, name)


def check_refused_names(module: Module) -> Iterator[Finding]:
    """The findings on what torch_npu does not compute at all, which a converted script stops at."""
    return (finding for finding in check_module(module) if finding.code == REFUSED.code)


@functools.cache
def refused_words() -> re.Pattern[bytes]:
    """A file in which this finds nothing has nothing for `check_refused_names`."""
    last = sorted({name.rpartition(".")[2] for name in support.find_refused_names()})
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, last))})\b".encode())


def _uses(module: Module) -> Iterator[tuple[ast.Attribute | ast.ImportFrom, str]]:
    """Names below torch that are read, each with the longest part that means something, and those imported."""
    for attribute in module.iter_nodes(ast.Attribute):
        name = module.resolve_name(attribute) if isinstance(attribute.ctx, ast.Load) else None
        if name is not None and name.startswith("torch."):
            yield attribute, name
    for node in module.iter_nodes(ast.ImportFrom):
        if node.level == 0 and (node.module or "").partition(".")[0] == "torch":
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names if alias.name != "*")


def _on_cpu(module: Module, node: ast.Attribute | ast.ImportFrom, name: str, operators: tuple[str, ...]) -> Finding:
    which = f" (aten::{', aten::'.join(operators)})" if operators else ""
    return ON_CPU.make_finding(
        module,
        node,
        f"{name} is computed on the CPU by torch_npu {support.read_measured_versions()[1]}{which}",
        hint=_ON_CPU,
    )


def _unknown(module: Module, node: ast.Attribute | ast.ImportFrom, name: str) -> Finding:
    torch, torch_npu = support.read_measured_versions()
    instead = support.load_removed_names().get(name)
    if instead:
        message, hint = f"{name} was removed from torch", f"Use {' or '.join(instead)}."
    else:
        message = f"torch {torch} has no {name}"
        hint = f"torch_npu {torch_npu} needs torch {torch}: look up what replaced the name."
    return UNKNOWN.make_finding(module, node, message, hint=hint)


def _guarded(module: Module) -> set[str]:
    """Words that the file asks for before it uses them: `hasattr(torch, "compile")`."""
    return {
        argument.value
        for call in module.iter_nodes(ast.Call)
        if module.resolve_name(call.func) in _GUARDS
        for argument in call.args[1:2]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def _is_tried(module: Module, node: ast.AST) -> bool:
    """Whether the name stands in a `try` with an `except`, or in a branch on a version: the script has another way."""
    return any(
        (isinstance(above, ast.Try) and bool(above.handlers))
        or (isinstance(above, ast.If) and "version" in ast.dump(above.test).lower())
        for above in module.names.iter_ancestors(node)
    )


_ON_CPU = (
    "It works: the tensors are copied to the CPU and back, which waits for the device. Outside of the training loop "
    "that does not matter; inside, compute it another way or on the CPU from the start."
)
_REFUSED = "No dtype that was tried is taken. Compute it on the CPU, or another way."
_DOCUMENTATION = "https://github.com/Ascend/pytorch"


def _rule(code: str, title: str, severity: Severity, why: str, reports: tuple[str, ...]) -> Rule:
    return Rule(code, title, Safety.REPORT, severity, why, _DOCUMENTATION, check_module, (), reports)


ON_CPU = _rule(
    "TP701",
    "torch_npu computes it on the CPU (analyze)",
    Severity.INFO,
    "Where torch_npu has no kernel it copies the operands to the CPU, computes there and copies the result back.",
    ("import torch\nu, s, v = torch.linalg.svd(x)\n",),
)
REFUSED = _rule(
    "TP702",
    "torch_npu refuses it",
    Severity.ERROR,
    "Neither a kernel for the NPU nor the fallback to the CPU takes it.",
    ("import torch\nx = torch.sparse.sampled_addmm(a, b, c)\n",),
)
UNKNOWN = _rule(
    "TP703",
    "torch does not have the name (analyze)",
    Severity.WARNING,
    "The script was written for another version of torch than the one that torch_npu needs.",
    ("import torch\ne, v = torch.symeig(x)\n", "import torch\nx = torch.no_such_function(1)\n"),
)
SUPPORT: tuple[Rule, ...] = (ON_CPU, REFUSED, UNKNOWN)
