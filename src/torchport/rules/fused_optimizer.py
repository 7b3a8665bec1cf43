"""TP217: fused optimizers with a gradient scaler, of which torch_npu's take no notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.calls import keyword_is
from torchport.source.module import Module

OPTIMIZERS = frozenset(
    f"torch.optim{inner}.{name}"
    for name, inner_names in (("Adam", ("", ".adam")), ("AdamW", ("", ".adamw")), ("SGD", ("", ".sgd")))
    for inner in inner_names
)
SCALERS = frozenset(f"torch.{part}.GradScaler" for part in ("amp", "amp.grad_scaler", "cuda.amp", "npu.amp"))


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One finding per optimizer that is fused, in a file that makes a scaler."""
    calls = list(module.iter_nodes(ast.Call))
    if not any(module.resolve_name(call.func) in SCALERS for call in calls):
        return
    for call in calls:
        if module.resolve_name(call.func) in OPTIMIZERS and keyword_is(call, "fused", True):
            yield RULE.make_finding(
                module,
                call,
                "on the NPU a fused optimizer takes no notice of the gradient scaler",
                hint="Leave out fused=True, or use `torchport run`, which unscales the gradients first.",
            )


RULE = Rule(
    code="TP217",
    title="fused optimizer with a gradient scaler",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="torch hands a fused optimizer the scale and whether a gradient is infinite. torch_npu 2.13.0 uses neither: "
    "steps that are to be left out are done with infinite gradients, and torch_npu's own scaler raises a TypeError "
    "(`step() got an unexpected keyword argument 'grad_scaler'`), also in a transformers Trainer with fp16=True.",
    reference="https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling",
    words=CUDA,
    check=check_module,
    rewrites=(),
    reports=("import torch\nscaler = torch.amp.GradScaler()\no = torch.optim.AdamW(p, fused=True)  # cuda\n",),
    ignores=(
        "import torch\nscaler = torch.amp.GradScaler()\no = torch.optim.AdamW(p)  # cuda\n",
        "import torch\no = torch.optim.AdamW(p, fused=True)  # cuda\n",
    ),
)
