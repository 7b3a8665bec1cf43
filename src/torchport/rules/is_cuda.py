"""TP121: `.is_cuda` of tensors and storages."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.accelerator_name import ACCELERATOR
from torchport.rules.receivers import OPTIONS, Owner, Receivers
from torchport.source.module import Module

_SCRIPTED = ("torch.jit.script", "torch.jit.script_method", "torch.jit.export")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every read of `is_cuda` that is torch's or may be."""
    receivers = Receivers(module, "is_cuda")
    yield from _asked_by_name(module, receivers, style)
    for node in module.iter_nodes(ast.Attribute):
        if node.attr != "is_cuda" or not isinstance(node.ctx, ast.Load) or module.resolve_name(node) is not None:
            continue
        if _is_answer(node.value) or OPTIONS.fullmatch(module.get_source(node.value)):
            continue
        owner = receivers.resolve_owner(node.value)
        if owner is Owner.UNKNOWN:
            yield RULE.make_finding(
                module,
                node,
                "a class of the project has its own is_cuda, and nothing shows whose this is",
                hint="If the object is a tensor, write is_npu here.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
        elif owner is Owner.OTHER or (owner is Owner.MOVED and receivers.is_moved(node.value)):
            yield RULE.make_finding(
                module,
                node,
                "nothing shows that this is a tensor's is_cuda, so it stays",
                hint="If the object is a tensor, write is_npu here.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
        elif owner is Owner.USER:
            continue
        elif _is_scripted(module, node):
            edits = _compared(module, node, '"npu"') if style is Style.NPU else [None]
            yield RULE.make_finding(
                module, node, "TorchScript knows no is_npu: the device type is compared instead", edits
            )
        elif style is Style.AGNOSTIC:
            edits = _compared(module, node, ACCELERATOR)
            yield RULE.make_finding(module, node, "is_cuda is a comparison of device types", edits)
        else:
            yield RULE.make_finding(
                module, node, "is_cuda is is_npu on the NPU", [module.attribute_edit(node, "is_npu")]
            )


def _asked_by_name(module: Module, receivers: Receivers, style: Style) -> Iterator[Finding]:
    """`getattr(x, "is_cuda", False)`, which is False for every tensor on the NPU."""
    for call in module.iter_nodes(ast.Call):
        match call.args:
            case [who, ast.Constant(value="is_cuda") as word, *_]:
                asked = module.resolve_name(call.func) in ("builtins.getattr", "builtins.hasattr")
                if asked and style is Style.NPU and receivers.resolve_owner(who) is Owner.TORCH:
                    edits = [module.string_edit(word, "is_cuda", "is_npu")]
                    yield RULE.make_finding(module, call, "is_cuda is is_npu on the NPU", edits)
            case _:
                pass


def _is_answer(node: ast.expr) -> bool:
    """Whether this is a truth value: what `.is_cuda` gives, before or after its conversion."""
    return isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr == "is_cuda")


def _compared(module: Module, node: ast.Attribute, device: str) -> list[Edit | None]:
    """`x.is_cuda` as `(x.device.type == device)`; what x is stays free for other edits."""
    start, _ = module.text.span(node)
    return [Edit(start, start, b"("), module.attribute_edit(node, f"device.type == {device})")]


def _is_scripted(module: Module, node: ast.AST) -> bool:
    for above in module.names.iter_ancestors(node):
        if isinstance(above, ast.FunctionDef):
            if any(module.resolve_name(decorator) in _SCRIPTED for decorator in above.decorator_list):
                return True
            for call in module.iter_nodes(ast.Call):
                scripted = module.resolve_name(call.func) in _SCRIPTED and call.args
                if scripted and module.names.find_definition(call.args[0]) is above:
                    return True
    return False


RULE = Rule(
    code="TP121",
    title=".is_cuda of tensors becomes .is_npu",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="is_cuda is False for a tensor on the NPU, so the GPU branch would be skipped silently.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import torch\nok = getattr(torch.ones(1), 'is_cuda', False)\n",
            "import torch\nok = getattr(torch.ones(1), 'is_npu', False)\n",
        ),
        ("import torch\nassert x.is_cuda\n", "import torch\nassert x.is_npu\n"),
        ("def f(x):\n    return not x.is_cuda\n", "def f(x):\n    return not x.is_npu\n"),
        (
            "import torch\n@torch.jit.script\ndef f(x):\n    return x.is_cuda\n",
            'import torch\n@torch.jit.script\ndef f(x):\n    return (x.device.type == "npu")\n',
        ),
    ),
    reports=(
        "import unknownlib\nassert unknownlib.Graph().is_cuda\n",
        "from torch_geometric.data import Data\nassert Data(x=1).is_cuda\n",
    ),
    ignores=(
        "class Q:\n    is_cuda = True\nQ().is_cuda\n",
        "class Q:\n    is_cuda = True\n    def f(self):\n        return self.is_cuda\n",
        "class Q:\n    def __init__(self):\n        self.is_cuda = True\nq = Q()\nprint(q.is_cuda)\n",
        "x.is_npu\n",
        "import torch\ndef f(config):\n    return 'run' if config.is_cuda else 'wait'\n",
        "is_cuda = True\nprint(is_cuda)\n",
        "(x.device.type == y).is_cuda\n",
    ),
)
