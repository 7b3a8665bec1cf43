"""TP122: the raw handle of a stream or an event, `stream.cuda_stream`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module
from torchport.source.names import Binds

_HANDLES = {"cuda_stream": "npu_stream", "cuda_event": "npu_event"}
_MAKERS = {"cuda_stream": ("current_stream", "default_stream", "Stream", "ExternalStream"), "cuda_event": ("Event",)}


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every handle that is taken of what torch.cuda has given."""
    for node in module.iter_nodes(ast.Attribute):
        if node.attr in _HANDLES and _is_torch(module, node.value, _MAKERS[node.attr]):
            new = _HANDLES[node.attr]
            yield RULE.make_finding(
                module,
                node,
                f"the handle is {new} on the NPU, and CANN's: what takes it has to expect that",
                [module.attribute_edit(node, new) if style is Style.NPU else None],
                hint="CUDA's driver, CuPy and numba cannot use it.",
            )


def _is_torch(module: Module, node: ast.expr, makers: tuple[str, ...]) -> bool:
    if isinstance(node, ast.Call):
        name = module.resolve_name(node.func) or ""
        return name.startswith("torch.cuda.") and name.rpartition(".")[2] in makers
    if not isinstance(node, ast.Name):
        return False
    found = module.names.find_bindings(node)
    return bool(found) and all(
        one.how is Binds.VALUE and isinstance(one.value, ast.Call) and _is_torch(module, one.value, makers)
        for one in found
    )


RULE = Rule(
    code="TP122",
    title="raw handles of streams and events",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why="torch_npu's streams have npu_stream in the place of cuda_stream, an aclrtStream: reading cuda_stream raises.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.cuda.Stream.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import torch\nh = torch.cuda.current_stream().cuda_stream\n",
            "import torch\nh = torch.npu.current_stream().npu_stream\n",
        ),
        (
            "import torch\ns = torch.cuda.Stream()\nlaunch(s.cuda_stream)\n",
            "import torch\ns = torch.npu.Stream()\nlaunch(s.npu_stream)\n",
        ),
    ),
    reports=(),
    ignores=(
        "import torch\nmodel.cuda_stream.synchronize()\n",
        "import cupy\ns = cupy.cuda.Stream()\ns.cuda_stream\n",
        "class A:\n    def f(self):\n        return self.cuda_stream\n",
    ),
)
