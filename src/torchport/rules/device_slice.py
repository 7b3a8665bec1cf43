"""TP112: devices that are cut or measured by position: `device[:4] == "cuda"`, `int(device[5:])`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.device_pattern import is_device
from torchport.rules.roles import find_roles
from torchport.source.module import Module

_WORDS = (len("cuda"), len("cuda:"))
_OF_TEXTS = frozenset({"isdigit", "isnumeric", "isdecimal", "strip", "zfill"})
_SHORTER = len("cuda") - len("npu")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every position in the text of a device that is another one in the NPU's."""
    slices = (node for node in module.iter_nodes(ast.Subscript) if isinstance(node.slice, ast.Slice))
    cuts = [(cut, *found) for cut in slices if (found := _find_bound(module, cut))[0] is not None]
    lengths = list(_lengths(module))
    if not cuts and not lengths:
        return
    roles = find_roles(module, "device")
    for cut, bound, said in cuts:
        if bound is not None and is_device(module, roles, cut.value):
            edit = _edit(module, bound) if style is Style.NPU and said else None
            yield RULE.make_finding(
                module,
                cut,
                "the name of an NPU is one letter shorter than cuda",
                [edit],
                hint="Take the device apart by torch.device(...).type and .index, not by positions."
                if not edit
                else "",
            )
    for call, compared in lengths:
        if is_device(module, roles, call.args[0]):
            yield RULE.make_finding(
                module,
                compared,
                "the length of a device's name is compared: an NPU's is one letter shorter",
                hint="Take the device apart by torch.device(...).type and .index, not by its length.",
                severity=Severity.WARNING,
                safety=Safety.REPORT,
            )


def is_cut_otherwise(module: Module, node: ast.expr) -> bool:
    """Whether a text is one of several that are compared with a part of a device's name: it stays, as the part does."""
    words = module.get_parent(node)
    compare = module.get_parent(words) if isinstance(words, ast.Tuple | ast.List | ast.Set) else None
    if not isinstance(compare, ast.Compare):
        return False
    return isinstance(compare.left, ast.Subscript) and isinstance(compare.left.slice, ast.Slice)


def _find_bound(module: Module, cut: ast.Subscript) -> tuple[ast.Constant | None, bool]:
    """The position behind `cuda` or `cuda:` in a slice, and whether it is certain what follows from it."""
    assert isinstance(cut.slice, ast.Slice)
    lower, upper = cut.slice.lower, cut.slice.upper
    above = module.get_parent(cut)
    from_start = lower is None or (isinstance(lower, ast.Constant) and lower.value == 0)
    if from_start and isinstance(upper, ast.Constant) and type(upper.value) is int and upper.value in _WORDS:
        if isinstance(above, ast.Compare) and len(above.ops) == 1:
            texts = _texts(above.comparators[0] if above.left is cut else above.left)
            if any(text.startswith("cuda") and len(text) == upper.value for text in texts):
                return upper, len(texts) == 1
        if upper.value == _WORDS[0] and _is_device_type(module, cut):
            return upper, True  # torch.autocast(device_type=device[:4])
    # `[4:]` is the number of an NPU: it stays, or a second conversion would cut it again.
    number = isinstance(lower, ast.Constant) and type(lower.value) is int and lower.value == _WORDS[-1]
    if upper is None and number and isinstance(lower, ast.Constant) and _is_text(module, cut):
        return lower, True
    return None, False


def _is_device_type(module: Module, cut: ast.Subscript) -> bool:
    """Whether torch is given what is cut as the type of a device."""
    above = module.get_parent(cut)
    if isinstance(above, ast.keyword):
        return above.arg == "device_type"
    called = module.resolve_name(above.func) if isinstance(above, ast.Call) and cut in above.args[:1] else None
    return called in ("torch.autocast", "torch.amp.autocast", "torch.device")


def _texts(node: ast.expr) -> list[str]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _is_text(module: Module, cut: ast.Subscript) -> bool:
    """Whether a text is cut, not a list of devices: it is made by str(), or a number is made of the rest."""
    value, above = cut.value, module.get_parent(cut)
    if isinstance(value, ast.Call) and module.resolve_name(value.func) == "builtins.str":
        return True
    if isinstance(above, ast.Attribute):
        return above.attr in _OF_TEXTS
    return isinstance(above, ast.Call) and module.resolve_name(above.func) == "builtins.int" and above.args == [cut]


def _lengths(module: Module) -> Iterator[tuple[ast.Call, ast.Compare]]:
    """`len(device) > 4`: the calls that are compared with the length of a name of CUDA's."""
    for compare in module.iter_nodes(ast.Compare):
        match compare:
            case ast.Compare(left=ast.Call(args=[_]) as call, comparators=[ast.Constant(value=int() as number)]):
                if module.resolve_name(call.func) == "builtins.len" and number in (*_WORDS, _WORDS[-1] + 1):
                    value = call.args[0]
                    if isinstance(value, ast.Call) and module.resolve_name(value.func) == "builtins.str":
                        yield call, compare
            case _:
                pass


def _edit(module: Module, bound: ast.Constant) -> Edit:
    assert isinstance(bound.value, int)
    start, end = module.text.span(bound)
    return Edit(start, end, str(bound.value - _SHORTER).encode())


RULE = Rule(
    code="TP112",
    title="devices that are cut by position",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="A device of an NPU is npu:0 as text, one letter shorter than cuda:0: the first four letters are never npu, "
    "and the number begins one place earlier.",
    reference="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device",
    words=CUDA,
    check=check_module,
    rewrites=(
        ("if str(x.device)[:4] == 'cuda':\n    pass\n", "if str(x.device)[:3] == 'npu':\n    pass\n"),
        (
            "import torch\nd = 'cuda:1'\nm.to(torch.device(d))\nwith torch.autocast(device_type=d[:4]):\n    pass\n",
            "import torch\nd = 'npu:1'\nm.to(torch.device(d))\nwith torch.autocast(device_type=d[:3]):\n    pass\n",
        ),
        (
            "import torch\nd = 'cuda:1'\nx = torch.ones(1, device=d)\nok = d[5:].isdigit()\n",
            "import torch\nd = 'npu:1'\nx = torch.ones(1, device=d)\nok = d[4:].isdigit()\n",
        ),
        ("if str(x.device)[0:5] == 'cuda:':\n    pass\n", "if str(x.device)[0:4] == 'npu:':\n    pass\n"),
        (
            "import torch\nd = 'cuda:1'\nx = torch.ones(1, device=d)\nn = int(d[5:])\n",
            "import torch\nd = 'npu:1'\nx = torch.ones(1, device=d)\nn = int(d[4:])\n",
        ),
    ),
    reports=(
        "cuda = 1\nok = len(str(x.device)) > 4\n",
        "cuda = 1\nif str(x.device)[:5] in ('cuda:', 'other'):\n    pass\n",
        "if str(x.device)[:4] in ('cuda', 'cpu'):\n    pass\n",
    ),
    ignores=(
        "cuda = 1\nfirst = devices[4:]\n",
        "cuda = 1\nif name[:4] == 'cuda':\n    pass\n",
        "cuda = 1\nn = int(str(x.device).split(':')[1])\n",
        "cuda = 1\nlast = str(x.device)[-1]\nok = len(devices) > 4\n",
    ),
)
