"""TP184: properties of a CUDA device that an NPU has not: `torch.cuda.get_device_properties(0).major`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

# Of torch 2.13's _CudaDeviceProperties; torch_npu 2.13's has name, total_memory and counts of cores.
_MISSING = frozenset(
    {"major", "minor", "multi_processor_count", "warp_size", "max_threads_per_multi_processor", "gcnArchName"}
    | {"regs_per_multiprocessor", "shared_memory_per_block", "shared_memory_per_multiprocessor", "is_integrated"}
)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for each such property that is read."""
    made = {
        module.flow.find(call)
        for call in module.iter_nodes(ast.Call)
        if module.resolve_name(call.func) in ("torch.cuda.get_device_properties", "torch.npu.get_device_properties")
    }
    for node in module.iter_nodes(ast.Attribute):
        if node.attr in _MISSING and module.flow.find(node.value) in made:
            yield RULE.make_finding(
                module,
                node,
                f"the properties of an NPU have no {node.attr}",
                hint="Reading it raises AttributeError. Ask for what is needed, such as torch.npu.is_bf16_supported().",
            )


RULE = Rule(
    code="TP184",
    title="properties that an NPU has not",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="torch.npu.get_device_properties gives name, total_memory and counts of cores. The compute capability and the "
    "multiprocessors of a CUDA device are not there, so that the line raises AttributeError.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.cuda.get_device_properties.html",
    words=(b"get_device_properties",),
    check=check_module,
    rewrites=(),
    reports=(
        "import torch\np = torch.npu.get_device_properties(0)\nif p.major >= 8:\n    pass\n",
        "import torch\nn = torch.npu.get_device_properties('npu').multi_processor_count\n",
    ),
    ignores=(
        "import torch\nm = torch.npu.get_device_properties(0).total_memory\n",
        "import sys, torch\np = torch.npu.get_device_properties(0)\nif sys.version_info.major >= 3:\n    pass\n",
    ),
)
