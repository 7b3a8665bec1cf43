"""TP501: advice on loading data for NPUs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

NAMES = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One finding per loader that shuffles, which is how training data is read, and leaves something out."""
    for call in module.iter_nodes(ast.Call):
        if module.resolve_name(call.func) not in NAMES:
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if None in given or not ("shuffle" in given or "sampler" in given) or _is_false(given.get("shuffle")):
            continue  # options from elsewhere; a loader that keeps the order
        advice = []
        if "drop_last" not in given and "batch_sampler" not in given:
            advice.append(
                "drop_last=True keeps one shape: operators are compiled for each new one, and the last batch differs"
            )
        if "pin_memory" not in given:
            advice.append("pin_memory=True with to(device, non_blocking=True) copies while the NPU computes")
        if advice:
            yield RULE.make_finding(
                module,
                call,
                "this loader can feed an NPU better",
                hint="; ".join(advice)[:1].upper() + "; ".join(advice)[1:] + ".",
            )


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


RULE = Rule(
    code="TP501",
    title="advice on loading data",
    safety=Safety.REPORT,
    severity=Severity.INFO,
    why="An NPU compiles operators for each shape that it meets and waits for data as a GPU does. Both are the "
    "script's choice, so this is advice and never an edit.",
    reference="https://docs.pytorch.org/docs/stable/data.html#memory-pinning",
    words=CUDA,
    check=check_module,
    rewrites=(),
    reports=("import torch\nfrom torch.utils.data import DataLoader\nd = DataLoader(s, shuffle=True)  # cuda\n",),
    ignores=("import torch\nfrom torch.utils.data import DataLoader\nd = DataLoader(s, batch_size=2)  # cuda\n",),
)
