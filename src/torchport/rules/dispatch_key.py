"""TP182: kernels that are registered under CUDA's dispatch keys: `library.impl("op", f, "CUDA")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

# CUDA's keys and those of a backend outside of torch, which the NPU's is (c10/core/DispatchKey.h).
KEYS = {
    "CUDA": "PrivateUse1",
    "AutogradCUDA": "AutogradPrivateUse1",
    "AutocastCUDA": "AutocastPrivateUse1",
    "SparseCUDA": "SparsePrivateUse1",
    "SparseCsrCUDA": "SparseCsrPrivateUse1",
    "QuantizedCUDA": "QuantizedPrivateUse1",
    "NestedTensorCUDA": "NestedTensorPrivateUse1",
    "AutogradNestedTensorCUDA": "AutogradNestedTensorPrivateUse1",
}
_TAKES_KEY = frozenset({"impl", "fallback", "Library", "py_impl"})
_DISPATCH = "DispatchKey"


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every key that a library of operators is given, as a string or as `DispatchKey.CUDA`."""
    for constant in module.iter_nodes(ast.Constant):
        if isinstance(constant.value, str) and constant.value in KEYS and _is_key(module, constant):
            new = KEYS[constant.value]
            yield _finding(module, constant, constant.value, module.string_edit(constant, constant.value, new), style)
    for attribute in module.iter_nodes(ast.Attribute):
        owner = attribute.value
        last = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        if attribute.attr in KEYS and last == _DISPATCH:
            yield _finding(
                module, attribute, attribute.attr, module.attribute_edit(attribute, KEYS[attribute.attr]), style
            )


def _finding(module: Module, node: ast.expr, key: str, edit: Edit | None, style: Style) -> Finding:
    report = style is not Style.NPU
    return RULE.make_finding(
        module,
        node,
        f"the NPU's kernels are registered for the key {KEYS[key]}, not {key}",
        () if report else [edit],
        hint="Register the function for both keys, if it runs on both."
        if report
        else "Check that the function has nothing of CUDA's own in it.",
        safety=Safety.REPORT if report else None,
    )


def _is_key(module: Module, node: ast.Constant) -> bool:
    above = module.get_parent(node)
    call = module.get_parent(above) if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call):
        return False
    name = module.resolve_name(call.func) or ""
    if name.startswith("torch.library."):
        return True
    return isinstance(call.func, ast.Attribute) and call.func.attr in _TAKES_KEY and node not in call.args[:1]


RULE = Rule(
    code="TP182",
    title="kernels under CUDA's dispatch keys",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why="torch asks the kernels of the key PrivateUse1 for a tensor on an NPU. One that is registered for CUDA is "
    "never called, and the operator fails.",
    reference="https://docs.pytorch.org/docs/stable/library.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import torch\nlib = torch.library.Library('my', 'IMPL', 'CUDA')\nlib.impl('op', f)\n",
            "import torch\nlib = torch.library.Library('my', 'IMPL', 'PrivateUse1')\nlib.impl('op', f)\n",
        ),
        ("lib.impl('op', f, 'CUDA')\n", "lib.impl('op', f, 'PrivateUse1')\n"),
        (
            "import torch\n@torch.library.impl(lib, 'op', dispatch_key='AutogradCUDA')\ndef f(x):\n    return x\n",
            "import torch\n@torch.library.impl(lib, 'op', dispatch_key='AutogradPrivateUse1')\n"
            "def f(x):\n    return x\n",
        ),
        (
            "from torch._C import DispatchKey\n@op.py_impl(DispatchKey.CUDA)\ndef f(x):\n    return x\n",
            "from torch._C import DispatchKey\n@op.py_impl(DispatchKey.PrivateUse1)\ndef f(x):\n    return x\n",
        ),
    ),
    reports=(),
    ignores=(
        "lib.impl('op', f, 'CPU')  # cuda\n",
        "lib.impl('CUDA', f)\n",
        "print('op', 'CUDA')\n",
        "name = 'CUDA'\n",
        "x = Kind.CUDA\n",
    ),
)
