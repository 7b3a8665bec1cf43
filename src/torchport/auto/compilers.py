"""TorchScript and torch.compile under the patches.

TorchScript compiles source text to code that runs without Python, so no patch of a function is met there: its device
names are changed in the syntax tree that it reads. torch.compile traces through the patches; what is missing without
triton-ascend is inductor, and then graphs run without it.
"""

from __future__ import annotations

import ast
from typing import Any

from torchport.auto.devices import npu_name
from torchport.auto.log import Log
from torchport.patches import Patches
from torchport.record.port_side import NO_INDUCTOR, patch_compile


def patch_compilers(torch: Any, patches: Patches, log: Log) -> None:
    """Patch both compilers."""
    frontend, builtins = torch.jit.frontend, torch.jit._builtins

    def parse(original: Any) -> Any:
        def parse_def(function: Any) -> Any:
            parsed = original(function)
            tree = ast.fix_missing_locations(_DeviceNames().visit(parsed.ast))
            return parsed._replace(ast=tree)

        return parse_def

    def find(original: Any) -> Any:
        def find_builtin(function: Any) -> Any:
            # A patched torch.zeros is aten::zeros as before.
            found = original(function)
            return found if found is not None else original(getattr(function, "__wrapped__", None))

        return find_builtin

    patches.wrap(frontend, "parse_def", parse)
    patches.wrap(builtins, "_find_builtin", find)
    patch_compile(torch, patches, lambda: log.count_unsupported_call("torch.compile", NO_INDUCTOR))


class _DeviceNames(ast.NodeTransformer):
    """Device names as the NPU's, and `x.is_cuda` as a question that TorchScript can answer for the NPU."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and npu_name(node.value) is not node.value:
            return ast.copy_location(ast.Constant(npu_name(node.value)), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != "is_cuda" or not isinstance(node.ctx, ast.Load):
            return node
        device = ast.Attribute(node.value, "device", ast.Load())
        kind = ast.Attribute(device, "type", ast.Load())
        return ast.copy_location(ast.Compare(kind, [ast.Eq()], [ast.Constant("npu")]), node)
