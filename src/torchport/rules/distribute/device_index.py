"""TP215: a device with a fixed index becomes the process's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.arguments import load_role
from torchport.rules import Rule
from torchport.rules.distribute import on_script
from torchport.rules.distribute.script import Script
from torchport.rules.distribute.start import LOCAL_RANK
from torchport.rules.receivers import Owner, Receivers
from torchport.rules.roles import Proof, Roles

_INDEXED = re.compile(r"cuda:(\d+)")
_TEMPLATE = re.compile(r"cuda:(?:%[dsi]|\{\d?\})?")
# Names that hold the number of a device, where `.to(number)` does not say what it is.
_NUMBER = re.compile(r"_*(?:gpus?|(?:gpu|cuda|device)_?(?:id|idx|index|no|num|number))")
_OWN = "a device without index is the process's own"
_TAKES_NUMBER = ("torch.cuda.set_device", "torch.cuda.device")


def check_script(script: Script) -> Iterator[Finding]:
    """A finding for every place that names one device."""
    if script.is_distributed:
        return
    yield from _strings(script)
    methods = {name: Receivers(script, name) for name in ("cuda", "to")}
    for call in script.iter_nodes(ast.Call):
        name = script.resolve_name(call.func)
        if name in _TAKES_NUMBER and call.args and script.get_source(call.args[0]) != LOCAL_RANK:
            edit = Edit(*script.text.span(call.args[0]), LOCAL_RANK.encode())
            yield RULE.make_finding(script, call, "each process chooses the device of its local rank", [edit])
        elif name == "torch.device" and len(call.args) == 2:
            start, end = script.text.span(call.args[0])[1], script.text.span(call.args[1])[1]
            yield RULE.make_finding(script, call, _OWN, [Edit(start, end, b"")])
        elif (
            isinstance(method := call.func, ast.Attribute)
            and method.attr in methods
            and name is None
            and methods[method.attr].resolve_owner(method.value) is Owner.TORCH
        ):
            yield from _moved(script, call, method.attr)
    for assign in script.iter_nodes(ast.Assign):
        if any("CUDA_VISIBLE_DEVICES" in script.get_source(target) for target in assign.targets):
            yield RULE.make_finding(
                script,
                assign,
                "the script hides all devices but some: every process would see those only",
                [Edit(*script.text.span(assign), b"pass")],
                safety=Safety.REVIEW,
                hint="Choose the devices where the processes are started.",
            )


def _moved(script: Script, call: ast.Call, method: str) -> Iterator[Finding]:
    """`x.cuda(0)`, `x.cuda(args.gpu, non_blocking=True)`, `x.to(0)`, `x.to(args.gpu)`."""
    named = next((keyword for keyword in call.keywords if keyword.arg == "device"), None)
    argument = call.args[0] if call.args else named.value if named else None
    if argument is None or isinstance(argument, ast.Starred) or len(call.args) > 1:
        return
    last = argument.attr if isinstance(argument, ast.Attribute) else getattr(argument, "id", "")
    safety = Safety.SAFE if isinstance(argument, ast.Constant) else Safety.REVIEW
    if method == "cuda":
        if load_role("device").names.match(last):
            yield RULE.make_finding(
                script,
                call,
                "this has to be the process's own device",
                safety=Safety.REPORT,
                severity=Severity.INFO,
                hint="It is, where the device has no index.",
            )
        else:
            yield RULE.make_finding(script, call, _OWN, [_removed(script, call, named)], safety=safety)
    elif _NUMBER.fullmatch(last) or _is_number(argument):
        edit = Edit(*script.text.span(argument), b'"cuda"')
        yield RULE.make_finding(script, call, _OWN, [edit], safety=safety)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _removed(script: Script, call: ast.Call, named: ast.keyword | None) -> Edit:
    """The call without its first argument, or without the one by name; others may follow."""
    _, head = script.text.span(call.func)
    end = script.text.span(call)[1] - 1
    first = head + script.text.decode_range(head, end).index("(") + 1
    keywords = call.keywords
    if call.args:
        return Edit(first, script.text.span(keywords[0])[0] if keywords else end, b"")
    assert named is not None
    index = keywords.index(named)
    if index + 1 < len(keywords):
        return Edit(script.text.span(named)[0], script.text.span(keywords[index + 1])[0], b"")
    return Edit(script.text.span(keywords[index - 1])[1] if index else first, end, b"")


def _strings(script: Script) -> Iterator[Finding]:
    roles = Roles(script, load_role("device"))
    for constant in script.iter_nodes(ast.Constant):
        text = constant.value if isinstance(constant.value, str) else ""
        found = _INDEXED.fullmatch(text)
        if found is None or isinstance(script.get_parent(constant), ast.JoinedStr | ast.Expr | ast.Dict):
            continue
        proof = roles.find_proof(constant)
        if proof is Proof.NONE or found[1] != "0":
            yield RULE.make_finding(
                script,
                constant,
                f"{text!r} is one device, whichever process asks for it",
                hint="Leave the index away where the process's own device is meant.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
        else:
            safety = Safety.SAFE if proof is Proof.PROVEN else Safety.REVIEW
            yield RULE.make_finding(script, constant, _OWN, [script.string_edit(constant, text, "cuda")], safety=safety)
    for node in _made(script):
        inside = any(isinstance(above, ast.JoinedStr) for above in script.names.iter_ancestors(node))
        if not inside and roles.find_proof(node) is not Proof.NONE:
            edit = Edit(*script.text.span(node), b'"cuda"')
            hint = f"Check that {script.get_source(node)} was the process's only device."
            yield RULE.make_finding(script, node, _OWN, [edit], safety=Safety.REVIEW, hint=hint)


def _made(script: Script) -> Iterator[ast.expr]:
    """`f"cuda:{n}"`, `"cuda:%d" % n`, `"cuda:{}".format(n)`, `"cuda:" + str(n)`: a device by a number of its own."""
    for joined in script.iter_nodes(ast.JoinedStr):
        match joined.values:
            case [ast.Constant(value="cuda:"), ast.FormattedValue()]:
                yield joined
    for constant in script.iter_nodes(ast.Constant):
        if not isinstance(constant.value, str) or not _TEMPLATE.fullmatch(constant.value):
            continue
        match above := script.get_parent(constant):
            case ast.BinOp(left=left, op=ast.Mod() | ast.Add()) if left is constant:
                yield above
            case ast.Attribute(attr="format") if isinstance(call := script.get_parent(above), ast.Call):
                yield call


RULE = Rule(
    code="TP215",
    title="a fixed device becomes the process's own (--distributed)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="After set_device a device without index is that of the process; an index would put all on one device.",
    reference="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device",
    check=on_script(check_script),
    rewrites=(
        ("import torch\nd = torch.device('cuda:0')\n", "import torch\nd = torch.device('cuda')\n"),
        ("import torch\ntorch.cuda.set_device(args.gpu)\n", f"import torch\ntorch.cuda.set_device({LOCAL_RANK})\n"),
        (
            "import torch\nd = torch.device('cuda', 0)\nx.cuda(0)\n",
            "import torch\nd = torch.device('cuda')\nx.cuda()\n",
        ),
        (
            "x.cuda(args.gpu, non_blocking=True)\nx.cuda(0,)\ny.cuda(device=1, non_blocking=True)\n",
            "x.cuda(non_blocking=True)\nx.cuda()\ny.cuda(non_blocking=True)\n",
        ),
        ("x.to(0)\nx.to(args.gpu_id, non_blocking=True)\n", 'x.to("cuda")\nx.to("cuda", non_blocking=True)\n'),
        (
            "import torch\nd = torch.device(f'cuda:{args.gpu}')\nx.to('cuda:%d' % n)\nx.to('cuda:{}'.format(n))\n",
            'import torch\nd = torch.device("cuda")\nx.to("cuda")\nx.to("cuda")\n',
        ),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n", "import os\npass\n"),
    ),
    reports=("import torch\nd = torch.device('cuda:1')\n", "print('cuda:0')\n"),
    ignores=(
        "import torch\nd = torch.device('cuda')\nx.cuda()\n",
        "import torch\nd = torch.device('cpu')\n",
        "x.cuda(*where)\nx.cuda(1, 2, 3)\n",
        "class Q:\n    def to(self, unit):\n        pass\nQ().to(1)\nx.to(dtype)\n",
        "print(f'cuda:{n}')\nprint('cuda:%d' % n)\n",
    ),
)
