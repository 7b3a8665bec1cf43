"""TP150: what torch's profiler of CUDA offers and the NPU's does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

_COLUMNS = frozenset(
    {"cuda_time_total", "cuda_time", "self_cuda_time_total", "cuda_memory_usage", "self_cuda_memory_usage"}
)


def check(module: Module, style: Style) -> Iterator[Finding]:
    """Findings for tables sorted by CUDA time, their attributes, and `use_cuda=True`."""
    for constant in module.all(ast.Constant):
        if constant.value in _COLUMNS and not isinstance(module.parent(constant), ast.Expr):
            yield _report(
                module, constant, f"there is no column {constant.value} in the NPU profiler's tables"
            )
    for attribute in module.all(ast.Attribute):
        if attribute.attr in _COLUMNS:
            yield _report(module, attribute, f"the NPU profiler's events have no {attribute.attr}")
    for call in module.all(ast.Call):
        called = module.qualified(call.func) or ""
        if not called.startswith("torch.autograd.profiler."):
            continue
        for keyword in call.keywords:
            if keyword.arg == "use_cuda" or (keyword.arg == "use_device" and style is Style.NPU):
                yield _report(module, call, f"{called} cannot record an NPU with {keyword.arg}", _OLD)


_OLD = " The guide's use_npu=True is there again after `import torchport.legacy`."


def _report(module: Module, node: ast.expr, message: str, more: str = "") -> Finding:
    hint = "Use torch_npu.profiler.profile and read op_statistic.csv and kernel_details.csv of its output."
    return RULE.finding(module, node, message, hint=hint + more)


RULE = Rule(
    code="TP150",
    title="profiler tables of CUDA times",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="torch_npu.profiler writes its tables to files; key_averages() and the CUDA columns do not exist there.",
    reference="https://docs.pytorch.org/docs/stable/profiler.html",
    check=check,
    rewrites=(),
    unchanged=(
        "print(prof.key_averages().table(sort_by='cuda_time_total'))\n",
        "import torch\nwith torch.autograd.profiler.profile(use_cuda=True) as p:\n    pass\n",
        "total = sum(e.self_cuda_time_total for e in prof.events())\n",
    ),
)  # fmt: skip
