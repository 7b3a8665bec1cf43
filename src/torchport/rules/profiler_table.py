"""TP150: what torch's profiler of CUDA offers and the NPU's does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.accelerator_name import ACCELERATOR
from torchport.source.module import Module

_COLUMNS = frozenset(
    {"cuda_time_total", "cuda_time", "self_cuda_time_total", "cuda_memory_usage", "self_cuda_memory_usage"}
)

_RECORDERS = ("torch.autograd.profiler.profile", "torch.autograd.profiler_legacy.profile")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """Findings for tables sorted by CUDA time, their attributes, and profilers that record CUDA."""
    for constant in module.iter_nodes(ast.Constant):
        if constant.value in _COLUMNS and not isinstance(module.get_parent(constant), ast.Expr):
            yield _report(module, constant, f"there is no column {constant.value} in the NPU profiler's tables")
    for attribute in module.iter_nodes(ast.Attribute):
        if attribute.attr in _COLUMNS:
            yield _report(module, attribute, f"the NPU profiler's events have no {attribute.attr}")
    for call in module.iter_nodes(ast.Call):
        if module.resolve_name(call.func) in _RECORDERS:
            yield from _recorded(module, call, style)


def _recorded(module: Module, call: ast.Call, style: Style) -> Iterator[Finding]:
    """`use_cuda=True` and `use_device="cuda"` of autograd's profiler, which torch_npu gives the times of the NPU."""
    device = '"npu"' if style is Style.NPU else ACCELERATOR
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg == "use_cuda" and not (isinstance(value, ast.Constant) and not value.value):
            chosen = "" if isinstance(value, ast.Constant) else f" if {module.get_source(value)} else None"
            start, end = module.text.span(keyword)
            edit = Edit(start, end, f"use_device={device}{chosen}".encode(module.text.encoding))
        elif keyword.arg == "use_device" and isinstance(value, ast.Constant) and value.value == "cuda":
            edit = Edit(*module.text.span(value), device.encode())
        else:
            continue
        yield RULE.make_finding(
            module,
            call,
            f"{keyword.arg} of autograd's profiler is use_device={device} on the NPU",
            [edit],
            hint="torch_npu.profiler.profile shows more: kernels, cores and memory, for MindStudio Insight.",
            safety=Safety.REVIEW,
            severity=Severity.INFO,
        )


def _report(module: Module, node: ast.expr, message: str) -> Finding:
    hint = "Use torch_npu.profiler.profile and read op_statistic.csv and kernel_details.csv of its output."
    return RULE.make_finding(module, node, message, hint=hint, safety=Safety.REPORT)


RULE = Rule(
    code="TP150",
    title="profilers and tables of CUDA times",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why="autograd's profiler times the NPU where it is asked to. torch_npu.profiler writes its tables to files; "
    "key_averages() and the CUDA columns do not exist there.",
    reference="https://docs.pytorch.org/docs/stable/profiler.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import torch\nwith torch.autograd.profiler.profile(use_cuda=True) as p:\n    pass\n",
            'import torch\nwith torch.autograd.profiler.profile(use_device="npu") as p:\n    pass\n',
        ),
        (
            "import torch\np = torch.autograd.profiler.profile(ok, use_cuda=args.gpu)\n",
            'import torch\np = torch.autograd.profiler.profile(ok, use_device="npu" if args.gpu else None)\n',
        ),
        (
            "import torch\np = torch.autograd.profiler.profile(use_device='cuda')\n",
            'import torch\np = torch.autograd.profiler.profile(use_device="npu")\n',
        ),
    ),
    reports=(
        "print(prof.key_averages().table(sort_by='cuda_time_total'))\n",
        "total = sum(e.self_cuda_time_total for e in prof.events())\n",
    ),
    ignores=("import torch\np = torch.autograd.profiler.profile(use_cuda=False)\n",),
)
