"""TP730: methods of a captured CUDA graph that an NPU's has not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

_GRAPHS = frozenset(
    {"torch.cuda.CUDAGraph", "torch.cuda.graphs.CUDAGraph", "torch.npu.NPUGraph", "torch_npu.npu.NPUGraph"}
)
_MISSING = frozenset({"instantiate", "raw_cuda_graph", "raw_cuda_graph_exec"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every use of one."""
    roots = {
        module.flow.find(call) for call in module.iter_nodes(ast.Call) if module.resolve_name(call.func) in _GRAPHS
    }
    for attribute in module.iter_nodes(ast.Attribute) if roots else ():
        if attribute.attr in _MISSING and module.flow.find(attribute.value) in roots:
            yield RULE.make_finding(
                module,
                attribute,
                f"an NPUGraph has no {attribute.attr}",
                hint="It is instantiated when the capture ends; torch_npu gives no handle of it.",
            )


RULE = Rule(
    code="TP730",
    title="methods of captured graphs",
    safety=Safety.REPORT,
    severity=Severity.ERROR,
    why="torch_npu 2.13.0's NPUGraph captures, replays, resets and dumps; it cannot be kept and instantiated later.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.cuda.CUDAGraph.html",
    words=(b"cudagraph", b"npugraph"),
    check=check_module,
    rewrites=(),
    reports=("import torch\ng = torch.npu.NPUGraph()\ng.instantiate()\n",),
    ignores=("import torch\ng = torch.npu.NPUGraph()\ng.replay()\n", "x.instantiate()\n"),
)
