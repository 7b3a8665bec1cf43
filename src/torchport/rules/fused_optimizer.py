"""TP217: fused optimizers with a gradient scaler, of which torch_npu's take no notice."""

from __future__ import annotations

import ast
import re
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
_MAKES_SCALER = re.compile(rb"GradScaler\(")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One finding per optimizer that is fused, in a file that makes a scaler."""
    calls = list(module.iter_nodes(ast.Call)) if b"fused" in module.text.data else []
    fused = [call for call in calls if module.resolve_name(call.func) in OPTIMIZERS and _is_fused(module, call)]
    here = any(module.resolve_name(call.func) in SCALERS for call in calls) if fused else False
    outside = module.project.outside
    if fused and (here or (outside is not None and any(outside.find_importers_with(module, _MAKES_SCALER)))):
        for call in fused:
            yield RULE.make_finding(
                module,
                call,
                "on the NPU a fused optimizer takes no notice of the gradient scaler",
                hint="Leave out fused=True, or use `torchport run`, which unscales the gradients first.",
                severity=None if here else Severity.INFO,  # that other file may make another one
            )


def _is_fused(module: Module, call: ast.Call) -> bool:
    """Whether `fused=True` is given, or may be in a dictionary: `AdamW(p, **(dict(fused=True) if new else {}))`."""
    given = [keyword.value for keyword in call.keywords if keyword.arg is None]
    values = [
        binding.value for one in given if isinstance(one, ast.Name) for binding in module.names.find_bindings(one)
    ]
    return keyword_is(call, "fused", True) or any(
        (isinstance(part, ast.Call) and keyword_is(part, "fused", True))
        or (isinstance(part, ast.Dict) and "'fused': True" in ast.unparse(part))
        for value in [*given, *values]
        if value is not None
        for part in ast.walk(value)
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
    reports=(
        "import torch\nscaler = torch.amp.GradScaler()\no = torch.optim.AdamW(p, fused=True)  # cuda\n",
        "import torch\nscaler = torch.amp.GradScaler()\nmore = dict(fused=True) if new else {}\n"
        "o = torch.optim.AdamW(p, **more)  # cuda\n",
    ),
    ignores=(
        "import torch\nscaler = torch.amp.GradScaler()\no = torch.optim.AdamW(p)  # cuda\n",
        "import torch\no = torch.optim.AdamW(p, fused=True)  # cuda\n",
    ),
)
