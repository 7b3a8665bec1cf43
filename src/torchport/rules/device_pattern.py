"""TP111: regular expressions that take devices apart: `re.match(r"cuda:(\\d+)", str(x.device))`."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.roles import Proof, Roles, find_roles
from torchport.source.module import Module

_FUNCTIONS = frozenset(f"re.{name}" for name in ("match", "search", "fullmatch", "findall", "finditer", "split"))
_REPLACING = frozenset({"re.sub", "re.subn"})
_COMPILE = "re.compile"
_WORD = re.compile(r"(?<![A-Za-z_])cuda(?![A-Za-z_])")
# Beside other devices: (?:cuda(?::\d+)?|cpu|mps)
_AMONG_OTHERS = re.compile(r"cuda[^\s|]*\|(?:cpu|mps|xpu|npu)\b|\b(?:cpu|mps|xpu|npu)\|cuda")
_DEVICE = re.compile(r"(?:^|[._\s])device\w*(?:$|\W)")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every pattern with the word cuda; an edit where a device is matched with it."""
    calls = [
        call
        for call in module.iter_nodes(ast.Call)
        if module.resolve_name(call.func) in (_COMPILE, *_FUNCTIONS, *_REPLACING)
    ]
    if not calls:
        return
    roles, matched = find_roles(module, "device"), _matched(module)
    for call in calls:
        name, pattern = module.resolve_name(call.func), _find_text(module, call.args[0]) if call.args else None
        if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str) or len(pattern.value) > 500:
            continue
        found = _WORD.search(pattern.value)
        several = _AMONG_OTHERS.search(pattern.value) is not None
        if found is None or (" " in pattern.value and not several):  # errors' texts are TP140's
            continue
        subject = (
            call.args[2 if name in _REPLACING else 1 :][:1]
            if name != _COMPILE
            else [*matched.get(call, ()), *matched.get(module.flow.find(call), ())]
        )
        ours = any(is_device(module, roles, one) for one in subject)
        if not ours and subject and isinstance(subject[0], ast.Constant):
            continue
        yield RULE.make_finding(
            module,
            pattern,
            f"the pattern {pattern.value!r} "
            + ("matches no device of an NPU" if ours else "may be matched with a device"),
            [_edit(module, pattern, found)] if ours and style is Style.NPU else (),
            hint="" if ours and style is Style.NPU else "If it is, it has to match npu:0.",
            safety=None if ours and style is Style.NPU else Safety.REPORT,
            severity=None if ours and style is Style.NPU else Severity.WARNING,
        )


def _find_text(module: Module, node: ast.expr) -> ast.expr:
    """The text that a name is given once, else the expression itself."""
    if isinstance(node, ast.Name):
        values = [binding.value for binding in module.names.find_bindings(node)]
        if len(values) == 1 and isinstance(values[0], ast.Constant):
            return values[0]
    return node


def is_pattern(module: Module, node: ast.expr) -> bool:
    """Whether the text is the pattern of a regular expression."""
    call = module.get_parent(node)
    return (
        isinstance(call, ast.Call)
        and call.args[:1] == [node]
        and module.resolve_name(call.func) in (_COMPILE, *_FUNCTIONS, *_REPLACING)
    )


def _matched(module: Module) -> dict[Hashable, list[ast.expr]]:
    """What the patterns of this file are matched with: by the call that compiles one, or by its class of values."""
    found: dict[Hashable, list[ast.expr]] = {}
    for call in module.iter_nodes(ast.Call):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        name = f"re.{call.func.attr}" if isinstance(call.func, ast.Attribute) else ""
        if owner is not None and name in (*_FUNCTIONS, *_REPLACING):
            key = owner if isinstance(owner, ast.Call) else module.flow.find(owner)
            found.setdefault(key, []).extend(call.args[1 if name in _REPLACING else 0 :][:1])
    return found


def _edit(module: Module, node: ast.Constant, found: re.Match[str]) -> Edit | None:
    content = module.string_content(node)
    if content is None:
        return None
    start = content[0] + len(content[1][: found.start()].encode(module.text.encoding))
    return Edit(start, start + len(b"cuda"), b"npu")


def is_device(module: Module, roles: Roles, node: ast.expr) -> bool:
    """Whether the text is a device: it reaches where one is expected, is made of one by `str()`, or is called so."""
    if roles.find_proof(node) is not Proof.NONE:
        return True
    while isinstance(node, ast.Call) and module.resolve_name(node.func) == "builtins.str" and node.args:
        node = node.args[0]
        if roles.find_proof(node) is not Proof.NONE:
            return True
    return isinstance(node, ast.Attribute | ast.Name) and _DEVICE.search(ast.unparse(node)) is not None


RULE = Rule(
    code="TP111",
    title="regular expressions that take devices apart",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="A device of an NPU is npu:0 as text: a pattern that says cuda no longer matches, and what follows takes "
    "another way without a word.",
    reference="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import re\nm = re.match(r'cuda:(\\d+)', str(x.device))\n",
            "import re\nm = re.match(r'npu:(\\d+)', str(x.device))\n",
        ),
        (
            "import re\ndef f(device):\n    return re.fullmatch('(cpu|cuda(:[0-9]+)?)', device)\n",
            "import re\ndef f(device):\n    return re.fullmatch('(cpu|npu(:[0-9]+)?)', device)\n",
        ),
        (
            "import re\nP = re.compile(r'(cpu|cuda)(:\\d+)?')\nm = P.match(args.device)\n",
            "import re\nP = re.compile(r'(cpu|npu)(:\\d+)?')\nm = P.match(args.device)\n",
        ),
        ("import re\nn = re.sub('^cuda:', '', str(x.device))\n", "import re\nn = re.sub('^npu:', '', str(x.device))\n"),
    ),
    reports=(
        "import re\nP = '^(?:cuda(?::\\\\d+)?|cpu|mps) (?:fp16|fp32)$'\nm = re.match(P, strategy)\n",
        "import re\nP = re.compile(r'cuda:(\\d+)')\n",
        "import re\nm = re.search(r'cuda-(\\d+)', text)\n",
    ),
    ignores=(
        "import re\nm = re.match(r'cuda_(\\w+)', str(x.device))\n",
        "import re\nm = re.match(r'npu:(\\d+)', str(x.device))  # cuda\n",
    ),
)
