"""TP605: CUDA sources."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Style
from torchport.rules.files import FileRule, TextFile
from torchport.source.kinds import Kind

_KERNEL = re.compile(r"__global__\s+(?:\w+\s+)*?(?:__launch_bounds__\([^)]*\)\s*)?(?:void\s+)?(\w+)\s*\(")


def check(file: TextFile, style: Style) -> Iterator[Finding]:
    """One finding per kernel, with its name."""
    count = sum(1 for line in file.lines() if line.text.strip())
    for line in file.lines():
        for found in _KERNEL.finditer(line.text):
            yield RULE.finding(
                file, line, found.span(1), f"the CUDA kernel {found[1]} has to be replaced ({count} lines here)",
                hint="Look for a torch or torch_npu operator that does it; else write it in Ascend C or triton-ascend.",
            )  # fmt: skip


RULE = FileRule(
    code="TP605",
    title="CUDA kernels",
    safety=Safety.REPORT,
    severity=Severity.ERROR,
    why="nvcc code does not run on an NPU. Each kernel is work of its own.",
    reference="https://github.com/Ascend/pytorch",
    kinds=frozenset({Kind.CUDA_SOURCE}),
    check=check,
    rewrites=(),
    unchanged=(
        ("k.cu", "__global__ void add(float* a) {}\n"),
        ("k.cu", "__host__ void f() {}\n"),
    ),
)
