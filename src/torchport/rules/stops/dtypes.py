"""TP722: functions and modules in dtypes that torch_npu refuses in them: float64 and complex numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge import support
from torchport.knowledge.support import How
from torchport.rules import Rule, Style
from torchport.rules.stops.seen_values import DTYPES, infer_dtype_and_device
from torchport.source.module import Module

_DEFAULTS = ("torch.set_default_dtype", "torch.set_default_tensor_type")
_DOUBLE = frozenset({"torch.float64", "torch.double", "torch.DoubleTensor"})
_PRODUCT = "torch.matmul"  # what @ and, mostly, einsum come to
_HINT = "Convert to float32 before it, or compute this part on the CPU."


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every call whose dtype is seen and was refused when it was measured."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func) or ""
        if name in _DEFAULTS and call.args and _is_double(module, call.args[0]):
            yield RULE.make_finding(
                module,
                call,
                "float64 becomes the default dtype: torch_npu refuses products, convolutions and normalisation in it",
                hint="Leave the default at float32, and name float64 where it is needed.",
            )
            continue
        dtypes = _of_layer(module, call, name) | _of_values(module, call.args)
        asked = _PRODUCT if name == "torch.einsum" else name
        for dtype in sorted(dtype for dtype in dtypes if _refuses(asked, dtype)):
            yield RULE.make_finding(module, call, f"torch_npu refuses {name} in {dtype}", hint=_HINT)
    for product in module.iter_nodes(ast.BinOp):
        if isinstance(product.op, ast.MatMult):
            for dtype in sorted(_of_values(module, [product.left, product.right])):
                if _refuses(_PRODUCT, dtype):
                    yield RULE.make_finding(
                        module, product, f"torch_npu refuses a matrix product in {dtype}", hint=_HINT
                    )


def _refuses(name: str, dtype: str) -> bool:
    if not name.startswith("torch."):
        return False
    found = support.find_measured_api(name)
    return found is not None and found.dtypes.get(dtype) is How.REFUSED and found.how is not How.REFUSED


def _of_layer(module: Module, call: ast.Call, name: str) -> set[str]:
    """The dtype of a layer: `nn.Linear(2, 2, dtype=torch.float64)`, `nn.Linear(2, 2).double()`."""
    if not name.startswith("torch.nn.") or name.startswith("torch.nn.functional."):
        return set()
    given = {word.arg: word.value for word in call.keywords}
    dtype = DTYPES.get(module.resolve_name(given["dtype"]) or "") if "dtype" in given else None
    above = module.get_parent(call)
    called = isinstance(above, ast.Attribute) and isinstance(module.get_parent(above), ast.Call)
    if isinstance(above, ast.Attribute) and called and above.attr == "double" and "device" not in given:
        dtype = "float64"
    return {dtype} if dtype else set()


def _of_values(module: Module, nodes: list[ast.expr]) -> set[str]:
    """What is seen of operands: complex ones, and those of float64 that a device has."""
    found = [infer_dtype_and_device(module, node) for node in nodes]
    return {one.dtype for one in found if one.dtype and (one.on_device or one.dtype != "float64")}


def _is_double(module: Module, node: ast.expr) -> bool:
    name = module.resolve_name(node)
    return name in _DOUBLE or (isinstance(node, ast.Constant) and node.value in _DOUBLE)


RULE = Rule(
    code="TP722",
    title="dtypes that an operator is refused in",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="CANN has matrix products, convolutions and normalisation in float32, float16 and bfloat16 alone: in float64 "
    "and complex numbers torch_npu raises an error (161002), where CUDA computes.",
    reference="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.dtype",
    words=(b"double", b"float64", b"complex", b"cfloat", b"polar"),
    check=check_module,
    rewrites=(),
    reports=(
        "import torch\nx = torch.ones(2, 2, dtype=torch.complex64)\ny = x @ x\n",
        "import torch\ntorch.set_default_dtype(torch.float64)\n",
        "import torch\nlayer = torch.nn.Linear(2, 2, dtype=torch.float64)\n",
    ),
    ignores=(
        "import torch\ny = torch.exp(x.double()).sum()\n",
        "import torch\ny = torch.eye(2, dtype=torch.float64) @ torch.ones(2, 2, dtype=torch.float64)\n",
    ),
)
