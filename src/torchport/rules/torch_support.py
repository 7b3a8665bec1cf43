"""TP701 to TP703, TP706: functions of torch that torch_npu computes on the CPU or refuses, unknown names, a default.

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
from torchport.knowledge.removed import find_removed_module
from torchport.knowledge.support import How
from torchport.rules import Rule, Style
from torchport.rules.other_way import find_asked_words, has_other_way, runs_at_import
from torchport.source.module import Module

NAMES_TORCH = re.compile(rb"\btorch\b")
_OURS = ("torch.cuda", "torch.npu", "torch.backends")  # TP101 knows them


def check_module(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """A finding for each use of a name that torch_npu does not simply compute; imports count as uses."""
    yield from _loads(module)
    guarded = find_asked_words(module)
    for node, name in _uses(module):
        if name.startswith(_OURS) or has_other_way(module, node):
            continue
        found = support.find_measured_api(name)
        if found is not None and found.how is How.FALLBACK:
            yield _on_cpu(module, node, name, found.on_cpu)
        elif found is not None and found.is_refused:
            yield REFUSED.make_finding(
                module, node, f"{name} is refused by torch_npu {support.read_measured_versions()[1]}", hint=_REFUSED
            )
        elif (
            support.has_public_name(name) is False
            and name.split(".")[-1] not in guarded
            and find_removed_module(name) is None  # TP704 speaks of it
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


def _loads(module: Module) -> Iterator[Finding]:
    """Calls of torch.load that take the default of weights_only, which was another before torch 2.6."""
    for call in module.iter_nodes(ast.Call):
        if module.resolve_name(call.func) == "torch.load" and not has_other_way(module, call):
            given = {keyword.arg for keyword in call.keywords}
            if not given & {"weights_only", "pickle_module", None}:
                yield DEFAULT.make_finding(
                    module, call, "torch.load takes tensors and plain containers alone since torch 2.6", hint=_LOADS
                )


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
    message = f"torch {torch} has no {name}"
    hint = f"torch_npu {torch_npu} needs torch {torch}: look up what replaced the name."
    stops = isinstance(node, ast.ImportFrom) and runs_at_import(module, node)
    return UNKNOWN.make_finding(module, node, message, hint=hint, evidence={"stops": "import"} if stops else {})


_ON_CPU = (
    "It works: the tensors are copied to the CPU and back, which waits for the device. Outside of the training loop "
    "that does not matter; inside, compute it another way or on the CPU from the start."
)
_REFUSED = "No dtype that was tried is taken. Compute it on the CPU, or another way."
_LOADS = (
    "Weights and state_dicts load. A file that holds other objects (a whole model, an argparse.Namespace) is refused: "
    "if you trust it, say weights_only=False."
)
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
    ("import torch\nx = torch.no_such_function(1)\n",),
)
DEFAULT = _rule(
    "TP706",
    "a default of torch has changed (analyze)",
    Severity.INFO,
    "weights_only was False before torch 2.6, and torch.load ran what a file names. That is so on any device.",
    ("import torch\nx = torch.load('model.pth')\n",),
)
SUPPORT: tuple[Rule, ...] = (ON_CPU, REFUSED, UNKNOWN, DEFAULT)
