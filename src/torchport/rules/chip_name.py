"""TP183: tests on the names of GPUs: `"A100" in torch.cuda.get_device_name()`."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Hashable, Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

_GPU = re.compile(
    r"(?i:nvidia|geforce|tesla|quadro|titan|ampere|hopper|blackwell|volta|turing)|\b(?:[ABHKLPTV]\d{1,3}S?|GB\d{3}|RTX|GTX|"
    r"[abhklptv]\d{1,3}s?|gb\d{3}|rtx|gtx|GH200|A\d{4})\b"
)
# Cards that scripts ask for because of what they cannot do, such as float16 on a GTX 1660.
_LIMITED = re.compile(r"\bGTX\b|\b[PKM]\d0\b|\bMX\d{3}\b", re.IGNORECASE)
_NAMES = frozenset({"torch.cuda.get_device_name", "torch.npu.get_device_name"})
_PROPERTIES = frozenset({"torch.cuda.get_device_properties", "torch.npu.get_device_properties"})
_METHODS = frozenset({"startswith", "endswith", "find", "count", "index"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every word that a device's name is compared with."""
    names = _names(module)
    if not names:
        return
    asks = False
    for compare in module.iter_nodes(ast.Compare):
        operands = [compare.left, *compare.comparators]
        if any(_is_name(module, operand, names) for operand in operands):
            asks = True
            yield from _words(module, operands)
    for call in module.iter_nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
            text, words = call.func.value, call.args
        elif (module.resolve_name(call.func) or "").startswith("re.") and len(call.args) > 1:
            text, words = call.args[1], call.args[:1]
        else:
            continue
        if _is_name(module, text, names):
            yield from _words(module, words)
    for table, key in _lookups(module):
        if _is_name(module, key, names):
            for one in _words(module, [word for word in table.keys if word is not None]):
                # Where the name is compared as well, that decides what the table is asked for.
                yield dataclasses.replace(one, severity=Severity.INFO) if asks else one


def _lookups(module: Module) -> Iterator[tuple[ast.Dict, ast.expr]]:
    """Tables with what they are asked for: `{"A100": 312}[name]`, `PEAKS.get(name)`."""
    asked = [(node.value, node.slice) for node in module.iter_nodes(ast.Subscript)]
    asked += [
        (call.func.value, call.args[0])
        for call in module.iter_nodes(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "get" and call.args
    ]
    for owner, key in asked:
        tables = (
            [binding.value for binding in module.names.find_bindings(owner)] if isinstance(owner, ast.Name) else [owner]
        )
        yield from ((table, key) for table in tables if isinstance(table, ast.Dict))


def _words(module: Module, nodes: list[ast.expr]) -> Iterator[Finding]:
    for node in nodes:
        for part in node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]:
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and _LIMITED.search(part.value):
                yield RULE.make_finding(
                    module,
                    part,
                    f"no NPU is called {part.value!r}: what is done for the limits of this GPU is not done",
                    severity=Severity.INFO,
                )
            elif isinstance(part, ast.Constant) and isinstance(part.value, str) and _GPU.search(part.value):
                yield RULE.make_finding(
                    module,
                    part,
                    f"no NPU is called {part.value!r}",
                    hint="An NPU's name is like Ascend910B1. What is done for this GPU is not done on the NPU: decide "
                    "by what is asked for, such as torch.npu.is_bf16_supported().",
                )


def _names(module: Module) -> frozenset[Hashable]:
    """The value classes of what torch says a device is called."""
    found: set[Hashable] = set()
    properties: set[Hashable] = set()
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func)
        if name in _NAMES:
            found.add(module.flow.find(call))
        elif name in _PROPERTIES:
            properties.add(module.flow.find(call))
    if properties:
        found.update(
            module.flow.find(attribute)
            for attribute in module.iter_nodes(ast.Attribute)
            if attribute.attr == "name" and module.flow.find(attribute.value) in properties
        )
    return frozenset(found)


def _is_name(module: Module, node: ast.expr, names: frozenset[Hashable]) -> bool:
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("lower", "upper", "strip", "casefold")
    ):
        node = node.func.value
    return module.flow.find(node) in names


RULE = Rule(
    code="TP183",
    title="tests on the names of GPUs",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="What a script does only where the device is called A100 or H100 (bfloat16, larger batches, a fused kernel) is "
    "silently left out on an NPU.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.cuda.get_device_name.html",
    words=CUDA,
    check=check_module,
    rewrites=(),
    reports=("import torch\nif 'A100' in torch.npu.get_device_name():  # cuda\n    pass\n",),
    ignores=(
        "import torch\nif 'cpu' in torch.npu.get_device_name():  # cuda\n    pass\n",
        "if 'A100' in name:  # cuda\n    pass\n",
        "import torch\nprint('A100', torch.npu.get_device_name())  # cuda\n",
    ),
)
