"""TP726: quantised tensors between host and NPU, and float8."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.rules.stops.seen_values import infer_dtype_and_device
from torchport.source.module import Module

_MAKES = frozenset({"torch.quantize_per_tensor", "torch.quantize_per_channel", "torch.quantize_per_tensor_dynamic"})
_READS = frozenset({"dequantize", "int_repr"})
_MOVES = frozenset({"cuda", "npu", "cpu", "to"})
_FLOAT8 = frozenset(f"torch.float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"))


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every move of a quantised tensor, and for every float8."""
    roots = {module.flow.find(call) for call in module.iter_nodes(ast.Call) if module.resolve_name(call.func) in _MAKES}
    for call in module.iter_nodes(ast.Call) if roots else ():
        owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES else None
        if owner is not None and module.flow.find(owner) in roots:
            yield RULE.make_finding(
                module,
                call,
                "torch_npu does not move a quantised tensor between the host and an NPU",
                hint="Quantise where it is used, or move x.int_repr() with its scale and zero point.",
            )
    for call in module.iter_nodes(ast.Call) if roots else ():
        made = module.resolve_name(call.func) in _MAKES and call.args
        if made and infer_dtype_and_device(module, call.args[0]).on_device and not _is_read(module, call):
            yield RULE.make_finding(
                module,
                call,
                "torch_npu does not compute with what is quantised on an NPU",
                hint="Arithmetic, comparisons and cat() stop there: dequantise it first, or use x.int_repr(). A tensor "
                "of one dimension is not quantised at all.",
            )
    for attribute in module.iter_nodes(ast.Attribute):
        if module.resolve_name(attribute) in _FLOAT8:
            yield RULE.make_finding(
                module,
                attribute,
                f"a 910B has no {attribute.attr}",
                hint="Use bfloat16, or int8 with torch_npu.npu_quant_matmul; Ascend 950 has float8.",
            )


def _is_read(module: Module, call: ast.Call) -> bool:
    """Whether what the call makes is dequantised somewhere."""
    root = module.flow.find(call)
    return any(
        attribute.attr in _READS and module.flow.find(attribute.value) == root
        for attribute in module.iter_nodes(ast.Attribute)
    )


RULE = Rule(
    code="TP726",
    title="quantised tensors and float8",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="torch_npu quantises and dequantises on the NPU, but neither moves what is quantised (`Could not run "
    "'aten::empty_quantized'`) nor computes with it. CANN casts to float8 on newer chips alone.",
    reference="https://docs.pytorch.org/docs/stable/quantization.html",
    words=(b"quantize_per", b"float8"),
    check=check_module,
    rewrites=(),
    reports=(
        "import torch\nq = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)\nq = q.cuda() if 0 else q\n",
        "import torch\nx = x.to(torch.float8_e4m3fn)\n",
    ),
    ignores=(
        "import torch\nx = torch.quantize_per_tensor(x.npu(), 0.1, 0, torch.qint8).dequantize()\n",
        "import torch\nx = x.to(torch.int8)\n",
    ),
)
