"""TP216: window functions without a dtype, which torch_npu makes of whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

WINDOWS = frozenset(f"torch.{name}_window" for name in ("bartlett", "blackman", "hamming", "hann"))
KAISER = "torch.kaiser_window"


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One finding per window that is made on a device; a call that hands on options from elsewhere is left alone."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func)
        given = {keyword.arg for keyword in call.keywords}
        if (name not in WINDOWS and name != KAISER) or None in given or "device" not in given or "out" in given:
            continue
        if name == KAISER:
            yield RULE.make_finding(
                module,
                call,
                "torch_npu has no kernel of torch.kaiser_window",
                hint="Make it on the CPU and move it: torch.kaiser_window(n).to(device).",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
        elif "dtype" not in given:
            last = max(
                (*call.args, *(keyword.value for keyword in call.keywords)), key=lambda one: module.text.span(one)
            )
            _, end = module.text.span(last)
            yield RULE.make_finding(
                module,
                call,
                f"{name} without a dtype fails on the NPU",
                [Edit(end, end, b", dtype=torch.get_default_dtype()")] if _names_torch(module) else (),
                hint="Give it the dtype that it has on CUDA: dtype=torch.get_default_dtype().",
            )


def _names_torch(module: Module) -> bool:
    return any(
        isinstance(node, ast.Import) and any(name.name == "torch" and name.asname is None for name in node.names)
        for node in module.tree.body
    )


RULE = Rule(
    code="TP216",
    title="window function without a dtype",
    safety=Safety.SAFE,
    severity=Severity.WARNING,
    why="torch_npu 2.13.0 begins such a window with torch.arange of whole numbers and multiplies that by a fraction, "
    "which CANN refuses (161002). The dtype that is written is the one that the call has everywhere else. Under "
    "`torchport run` the call works as it is.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.hann_window.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import torch\nw = torch.hann_window(8, device=x.device)  # cuda\n",
            "import torch\nw = torch.hann_window(8, device=x.device, dtype=torch.get_default_dtype())  # cuda\n",
        ),
    ),
    reports=(),
    ignores=(
        "import torch\nw = torch.hann_window(8, dtype=torch.float32, device=x.device)  # cuda\n",
        "import torch\nw = torch.hann_window(8)  # cuda\n",
        "import torch\nw = torch.hann_window(8, **options)  # cuda\n",
    ),
)
