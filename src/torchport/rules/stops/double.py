"""TP731: float64 that is float32 on an NPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.rules.stops.seen_values import DTYPES, infer_dtype_and_device
from torchport.source.module import Module


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every cast to float64 of what is seen to be on a device."""
    for call in module.iter_nodes(ast.Call):
        if (
            isinstance(call.func, ast.Attribute)
            and _casts(module, call)
            and infer_dtype_and_device(module, call.func.value).on_device
        ):
            yield RULE.make_finding(
                module,
                call,
                "torch_npu makes float32 of what is cast to float64 on the NPU",
                hint="Cast before the tensor is moved, x.double().npu(), for what an NPU computes in float64 (not "
                "products); or compute this part on the CPU.",
            )


def _casts(module: Module, call: ast.Call) -> bool:
    """Whether the call names float64 and nothing else, no device."""
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "double":
        return not call.args
    given = [*call.args, *(word.value for word in call.keywords if word.arg == "dtype")]
    return (
        call.func.attr in ("to", "type")
        and len(given) == 1
        and all(word.arg != "device" for word in call.keywords)
        and DTYPES.get(module.resolve_name(given[0]) or "") == "float64"
    )


RULE = Rule(
    code="TP731",
    title="float64 that is float32",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="x.double() and x.to(torch.float64) of a tensor on an NPU give float32 with torch_npu 2.13.0, which warns once "
    "(`Device do not support double dtype now`). A tensor that is made or moved in float64 keeps it.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.Tensor.double.html",
    words=(b"double", b"float64"),
    check=check_module,
    rewrites=(),
    reports=("import torch\nx = torch.ones(2, device=d).double()\n",),
    ignores=("import torch\nx = y.double()\n",),
)
