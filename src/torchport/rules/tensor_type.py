"""TP130: type names of CUDA tensors in strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

_TYPE = re.compile(r"torch\.cuda\.(\w+)Tensor")
_PREFIX = re.compile(r"torch\.cuda\.?")
_LOOKING = frozenset({"startswith", "find", "index", "count", "removeprefix", "replace", "partition"})
_DTYPES = {"Float": "", "Half": "torch.float16", "BFloat16": "torch.bfloat16", "Double": "torch.float64"}


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """Findings for "torch.cuda.FloatTensor" as a whole string, and for `set_default_tensor_type`."""
    if style is not Style.NPU:
        return
    for call in module.iter_nodes(ast.Call):
        if module.resolve_name(call.func) in ("torch.set_default_tensor_type", "torch.tensor.set_default_tensor_type"):
            yield from _default_type(module, call)
    for constant in module.iter_nodes(ast.Constant):
        text = constant.value
        if is_part_of_type(module, constant):
            message = "the name of a tensor type says npu on the NPU"
            yield RULE.make_finding(module, constant, message, [module.string_edit(constant, "cuda", "npu")])
        if isinstance(text, str) and _PREFIX.fullmatch(text):
            yield from _prefix(module, constant)
        if not isinstance(text, str) or not _TYPE.fullmatch(text) or _is_default_type(module, constant):
            continue
        if not isinstance(module.get_parent(constant), ast.Expr):
            yield RULE.make_finding(
                module,
                constant,
                f"{text} is {text.replace('cuda', 'npu')} on the NPU",
                [module.string_edit(constant, "torch.cuda", "torch.npu")],
            )


def is_part_of_type(module: Module, node: ast.expr) -> bool:
    """Whether it is the word of `"cuda" in x.type()`."""
    match module.get_parent(node):
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[ast.Call(args=[]) as call]):
            return (
                left is node
                and isinstance(node, ast.Constant)
                and node.value == "cuda"
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "type"
            )
        case _:
            return False


def _prefix(module: Module, node: ast.Constant) -> Iterator[Finding]:
    """`x.type().startswith("torch.cuda")`, `"torch.cuda" in x.type()`."""
    given: ast.expr = node
    above = module.get_parent(node)
    if isinstance(above, ast.Tuple):
        given, above = above, module.get_parent(above)
    match above:
        case ast.Call(func=ast.Attribute(attr=name, value=text)) if name in _LOOKING and given in above.args:
            pass
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[text]) if left is node:
            pass
        case _:
            return
    proven = isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "type"
    yield RULE.make_finding(
        module,
        node,
        "the name of a tensor type begins with torch.npu on the NPU",
        [module.string_edit(node, "torch.cuda", "torch.npu")],
        hint="" if proven else "Nothing here says that the text is the name of a type: check it.",
        safety=None if proven else Safety.REVIEW,
        severity=None if proven else Severity.WARNING,
    )


def _is_default_type(module: Module, node: ast.expr) -> bool:
    above = module.get_parent(node)
    return isinstance(above, ast.Call) and module.resolve_name(above.func) == "torch.set_default_tensor_type"


def _default_type(module: Module, call: ast.Call) -> Iterator[Finding]:
    argument = call.args[0] if len(call.args) == 1 else None
    if argument is None:
        return
    name = str(argument.value if isinstance(argument, ast.Constant) else module.resolve_name(argument))
    found = _TYPE.fullmatch(name)
    if found is None or not isinstance(call.func, ast.Attribute):
        return
    dtype = _DTYPES.get(found[1])
    torch = module.get_source(call.func.value)
    edits: list[Edit | None] = [None]
    if dtype is not None and isinstance(module.get_parent(call), ast.Expr):
        start, end = module.text.span(call)
        text = f'{torch}.set_default_device("npu")'
        if dtype:
            text += f"; {torch}.set_default_dtype({dtype.replace('torch', torch, 1)})"
        edits = [Edit(start, end, text.encode(module.text.encoding))]
    yield RULE.make_finding(
        module,
        call,
        f"set_default_tensor_type refuses {name}: the default device and dtype are set instead",
        edits,
        hint="New tensors are then on the NPU, those of DataLoader workers too: check where that is not wanted.",
        safety=Safety.REVIEW,
        severity=Severity.WARNING,
    )


RULE = Rule(
    code="TP130",
    title="names of CUDA tensor types become those of NPU tensors",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why='x.type() answers "torch.npu.FloatTensor" for a tensor on the NPU; set_default_tensor_type knows only CPU and '
    "CUDA types.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.set_default_device.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        ("x = x.type('torch.cuda.FloatTensor')\n", "x = x.type('torch.npu.FloatTensor')\n"),
        ("if 'cuda' in x.type():\n    pass\n", "if 'npu' in x.type():\n    pass\n"),
        (
            "if x.type().startswith('torch.cuda') or 'torch.cuda.' in y.type():\n    pass\n",
            "if x.type().startswith('torch.npu') or 'torch.npu.' in y.type():\n    pass\n",
        ),
        ("if x.type() == 'torch.cuda.HalfTensor':\n    pass\n", "if x.type() == 'torch.npu.HalfTensor':\n    pass\n"),
        (
            "import torch\ntorch.set_default_tensor_type('torch.cuda.FloatTensor')\n",
            'import torch\ntorch.set_default_device("npu")\n',
        ),
        (
            "import torch\ntorch.set_default_tensor_type(torch.cuda.HalfTensor)\n",
            'import torch\ntorch.set_default_device("npu"); torch.set_default_dtype(torch.float16)\n',
        ),
    ),
    reports=(),
    ignores=(
        "import torch\ntorch.set_default_tensor_type('torch.FloatTensor')\n",
        "text = 'a torch.cuda.FloatTensor is needed'\n",
        "'torch.cuda.FloatTensor'\n",
        "x = x.type('torch.FloatTensor')\n",
        "x = text.startswith('torch.cudart')\n",
        "if 'cuda' in x.type(dtype):\n    pass\n",
    ),
)
