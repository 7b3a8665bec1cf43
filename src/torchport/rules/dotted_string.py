"""TP181: names of torch.cuda in strings: what `mock.patch` replaces, annotations in quotes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.api import Status, find_api
from torchport.rules import CUDA, Rule, Style
from torchport.rules.plain_words import PlainWords
from torchport.rules.torch_cuda_api import convert_name
from torchport.source.module import Module

_NAME = re.compile(r"(?<![\w./-])(?:[A-Za-z_]\w*\.)*?(torch\.(?:cuda|backends\.cu(?:da|dnn))(?:\.[A-Za-z_]\w*)*)")
_WHOLE = re.compile(r"(?:[A-Za-z_]\w*\.)*?(torch\.(?:cuda|backends\.cu(?:da|dnn))(?:\.[A-Za-z_]\w*)+)")
_TYPE = re.compile(r".*torch\.cuda\.\w*Tensor")  # TP130
_LONGEST = 500
_REPLACES = frozenset({"patch", "setattr", "delattr", "import_module", "resolve_name", "importorskip", "spy", "stub"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every such string; an edit where it is an annotation or names what a test replaces."""
    plain = PlainWords(module)
    for constant in module.iter_nodes(ast.Constant):
        text = constant.value
        if not isinstance(text, str) or len(text) > _LONGEST or "torch." not in text:
            continue
        if isinstance(module.get_parent(constant), ast.Expr):
            continue
        if _is_annotation(module, constant):
            yield from _names(module, constant, style, Safety.SAFE)
        elif text == "torch.cuda" and _is_replaced(module, constant):
            yield from _names(module, constant, style, Safety.REVIEW)
        elif _WHOLE.fullmatch(text) and not _TYPE.fullmatch(text):
            if _is_replaced(module, constant):
                yield from _names(module, constant, style, Safety.REVIEW)
            elif not plain.explain_text(constant) and not _is_looked_up(module, constant):
                yield RULE.make_finding(
                    module,
                    constant,
                    f"{text} is named here, and torchport does not see what for",
                    hint="If it is called, replaced or imported by this name, write the NPU's: "
                    + convert_name(text, style)
                    + ".",
                    safety=Safety.REPORT,
                    severity=Severity.WARNING,
                )


def _names(module: Module, node: ast.Constant, style: Style, safety: Safety) -> Iterator[Finding]:
    """One finding for each name in the string, at its place."""
    content = module.string_content(node)
    for found in _NAME.finditer(str(node.value)):
        name = found[1]
        row, target = find_api(name), convert_name(name, style)
        if row is None or row[0].status is Status.MISSING:
            yield RULE.make_finding(
                module,
                node,
                f"{name} does not exist on the NPU" if row else f"nothing is known about {name} on the NPU",
                hint=f"{row[0].note[:1].upper()}{row[0].note[1:]}." if row else "",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
        elif target != name:
            edit = None
            if content is not None and "(" not in target:
                first = content[0] + len(str(node.value)[: found.start(1)].encode(module.text.encoding))
                edit = Edit(first, first + len(name.encode()), target.encode())
            severity = None if safety is Safety.SAFE else Severity.WARNING
            yield RULE.make_finding(
                module,
                node,
                f"{name} is {target} on the NPU",
                [edit],
                safety=safety,
                severity=severity,
                hint="The test replaces what the converted code calls." if safety is Safety.REVIEW else "",
            )


def _is_annotation(module: Module, node: ast.AST) -> bool:
    inner, above = node, module.get_parent(node)
    while isinstance(above, ast.Subscript | ast.Tuple | ast.List | ast.BinOp):
        inner, above = above, module.get_parent(above)
    match above:
        case ast.arg() | ast.AnnAssign():
            return above.annotation is inner
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return above.returns is inner
        case ast.Call(args=[first, *_]) if first is inner:
            return module.resolve_name(above.func) in ("typing.cast", "typing.ForwardRef")
        case _:
            return False


def _is_replaced(module: Module, node: ast.Constant) -> bool:
    """Whether it is the first argument of `mock.patch` and its kind."""
    call = module.get_parent(node)
    if not isinstance(call, ast.Call) or call.args[:1] != [node]:
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return name in _REPLACES


def _is_looked_up(module: Module, node: ast.Constant) -> bool:
    """Whether TP101 sees that the string is an attribute's name or a module."""
    above = module.get_parent(node)
    return isinstance(above, ast.Call | ast.Subscript) and (module.resolve_name(above) or "").startswith("torch.")


RULE = Rule(
    code="TP181",
    title="names of torch.cuda in strings",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="A test that replaces torch.cuda.is_available replaces nothing that the converted code calls, and an "
    "annotation in quotes is resolved by whoever asks for it.",
    reference="https://docs.python.org/3/library/unittest.mock.html#patch",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "from unittest import mock\nwith mock.patch('torch.cuda.is_available', return_value=False):\n    pass\n",
            "from unittest import mock\nwith mock.patch('torch.npu.is_available', return_value=False):\n    pass\n",
        ),
        (
            "@patch('pack.train.torch.cuda.synchronize')\ndef test(m):\n    pass\n",
            "@patch('pack.train.torch.npu.synchronize')\ndef test(m):\n    pass\n",
        ),
        (
            "def f(event: 'torch.cuda.Event') -> 'list[torch.cuda.Stream]':\n    pass\n",
            "def f(event: 'torch.npu.Event') -> 'list[torch.npu.Stream]':\n    pass\n",
        ),
        (
            "def test(monkeypatch):\n    monkeypatch.setattr('torch.cuda.device_count', lambda: 2)\n",
            "def test(monkeypatch):\n    monkeypatch.setattr('torch.npu.device_count', lambda: 2)\n",
        ),
    ),
    reports=("names = ['torch.cuda.is_available']\n",),
    ignores=(
        "print('torch.cuda.is_available')\n",
        "'torch.cuda.is_available'\n",
        "url = 'https://pytorch.org/docs/torch.cuda.html'\n",
        "from unittest import mock\nwith mock.patch('torch.npu.is_available'):\n    pass\n",
    ),
)
