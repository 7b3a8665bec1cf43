"""TP110: device strings ("cuda", "cuda:0", f"cuda:{rank}") where they are devices."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.accelerator_name import ACCELERATOR, is_accelerator
from torchport.rules.device_pattern import is_pattern
from torchport.rules.device_slice import is_cut_otherwise
from torchport.rules.lightning_accelerator import is_accelerator_of_lightning
from torchport.rules.plain_words import PlainWords
from torchport.rules.roles import DEVICES, Proof, find_roles
from torchport.rules.tensor_type import is_part_of_type
from torchport.source.module import Module

_WHOLE = re.compile(r"cuda(?::\d+)?")
# "cuda:" + str(i), "cuda:%d" % i, "cuda:{}".format(i)
_TEMPLATE = re.compile(r"cuda:(?:%[dsi]|\{[^{}]*\})?")
# A device in a language of its own: RWKV's strategies, "cuda fp16i8 *10 -> cpu fp32".
_STRATEGY = re.compile(r"cuda(?::\d+)?[ ]+(?:fp|bf|int)\d")
_LOOKING = frozenset({"startswith", "removeprefix", "replace", "split", "strip", "lstrip", "find", "partition"})

Literal = ast.Constant | ast.JoinedStr | ast.BinOp


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every literal that has the form of a CUDA device; an edit where it is used as one."""
    found = [
        (node, text)
        for node, text in _literals(module)
        if not is_accelerator(module, node) and not is_cut_otherwise(module, node)
    ]
    if not found:
        return
    roles, plain = find_roles(module, "device"), PlainWords(module)
    literals = list(find_device_literals(module))
    fixed = {module.flow.find(value): value for value, edit in literals if edit is None}
    tritons = _tritons_names(module)
    own = {module.flow.find(one) for one, _ in literals if _is_own_word(one)}
    named = any(roles.proof_of(root) is not Proof.NONE for root in own)
    for node, text in found:
        if module.flow.find(node) in tritons:
            yield _no_device(module, node, text, "it is compared with the name of Triton's backend, which is npu there")
            continue
        proof = roles.find_proof(node) if not _STRATEGY.match(text) else Proof.NONE
        if module.flow.find(node) in own or (named and proof is Proof.NAMED):
            yield _no_device(module, node, text, "the project's own word for an NPU is 'ascend', beside this one")
            continue
        if roles.is_fixed(node) or (module.flow.find(node) in fixed and fixed[module.flow.find(node)] is not node):
            yield RULE.make_finding(
                module,
                node,
                f"the device {text!r} is also written where it cannot be edited, so it stays everywhere",
                hint="Change all places of this value by hand, or write the other one as a plain text first.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
            continue
        if proof is Proof.NONE and not _is_choice(module, node):
            if not _is_of_another_rule(module, node):
                reason = "" if _STRATEGY.match(text) else plain.explain_word(node)
                yield _no_device(module, node, text, reason)
            continue
        is_named = proof is Proof.NAMED
        yield RULE.make_finding(
            module,
            node,
            f"the device {text!r} is {'npu' + text[4:]!r} on the NPU",
            [_edit(module, node, text) if style is Style.NPU else _agnostic(module, node, text)],
            hint="Only the name says that this is a device: check it." if is_named else _option_hint(module, node),
            safety=Safety.REVIEW if is_named else Safety.SAFE,
        )


def _tritons_names(module: Module) -> set[Hashable]:
    """The values that Triton gives: `triton.runtime.driver.active.get_current_target().backend`, cuda, hip or npu."""
    found = set[Hashable]()
    for attribute in module.iter_nodes(ast.Attribute):
        made = attribute.value.func if isinstance(attribute.value, ast.Call) else attribute.value
        if attribute.attr == "backend" and (module.resolve_name(made) or "").startswith("triton."):
            found.add(module.flow.find(attribute))
    return found


def _is_own_word(value: Hashable) -> bool:
    """Whether it is the word of projects that call an NPU "ascend"."""
    return isinstance(value, ast.Constant) and value.value == "ascend"


def find_device_literals(module: Module) -> Iterator[tuple[Hashable, Edit | None]]:
    """Every value that is spelled as a CUDA device, with the edit that makes it one of the NPU; None where it cannot be
    edited, as the key of `dict(cuda=...)`."""
    for node, text in _literals(module):
        yield node, _edit(module, node, text)
    yield from ((word, None) for word in module.iter_nodes(ast.Constant) if _is_own_word(word))
    for call in module.iter_nodes(ast.Call):
        if module.resolve_name(call.func) == "builtins.dict" and any(
            keyword.arg == "cuda" for keyword in call.keywords
        ):
            yield ("keys", module.flow.find(call)), None


def _no_device(module: Module, node: Literal, text: str, reason: str) -> Finding:
    """The finding on a word that no argument of torch's takes: a note where `reason` says what it is."""
    if reason:
        return RULE.make_finding(
            module, node, f"{text!r} is no device here: {reason}", safety=Safety.REPORT, severity=Severity.INFO
        )
    return RULE.make_finding(
        module,
        node,
        f"{text!r} has the form of a device, but nothing here uses it as one",
        hint="If it is a device, write it as npu; if it is a name of something else, leave it.",
        safety=Safety.REPORT,
        severity=Severity.WARNING,
    )


def _edit(module: Module, node: Literal, text: str) -> Edit | None:
    if isinstance(node, ast.BinOp):
        start, end = module.text.span(node)
        quote = module.text.decode_range(start, end)[0]
        return Edit(start, end, f"{quote}npu{text[4:]}{quote}".encode()) if quote in "'\"" else None
    return module.string_edit(node, "cuda", "npu")


def _agnostic(module: Module, node: Literal, text: str) -> Edit | None:
    """The literal with the name of the device taken from the variable ACCELERATOR."""
    start, end = module.text.span(node)
    if text == "cuda":
        new = ACCELERATOR
    elif isinstance(node, ast.JoinedStr):
        return module.string_edit(node, "cuda", f"{{{ACCELERATOR}}}")
    elif any(isinstance(above, ast.JoinedStr) for above in module.names.iter_ancestors(node)):
        return None  # a string inside an f-string: its quotes may be taken
    elif _WHOLE.fullmatch(text):
        new = f'f"{{{ACCELERATOR}}}{text[4:]}"'
    else:  # a part of a sum, or a template that is filled in afterwards
        new = f'({ACCELERATOR} + "{text[4:]}")'
    return Edit(start, end, new.encode())


def _literals(module: Module) -> Iterator[tuple[Literal, str]]:
    for constant in module.iter_nodes(ast.Constant):
        text = constant.value
        if not isinstance(text, str) or not text.startswith("cuda"):
            continue
        if isinstance(module.get_parent(constant), ast.Expr | ast.JoinedStr):
            continue
        if (
            _STRATEGY.match(text)
            or _WHOLE.fullmatch(text)
            or (_TEMPLATE.fullmatch(text) and _is_part(module, constant))
        ):
            yield constant, text
    for sum_ in module.iter_nodes(ast.BinOp):
        match sum_:
            case ast.BinOp(ast.Constant(value=str(left)), ast.Add(), ast.Constant(value=str(right))):
                if _WHOLE.fullmatch(left + right) and left != "cuda:":
                    yield sum_, left + right
    for joined in module.iter_nodes(ast.JoinedStr):
        first = joined.values[0] if joined.values else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            continue
        if first.value == "cuda:" or (len(joined.values) == 1 and _WHOLE.fullmatch(first.value)):
            yield joined, first.value


def _is_part(module: Module, node: ast.Constant) -> bool:
    """Whether the text becomes a device (`"cuda:%d" % i`) or is looked for in one (`d.startswith("cuda:")`)."""
    above = module.get_parent(node)
    if isinstance(above, ast.BinOp):
        return above.left is node
    if isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute):
        return above.func.attr in _LOOKING
    if isinstance(above, ast.Call) and isinstance(module.get_parent(above), ast.Slice):
        return module.resolve_name(above.func) == "builtins.len"  # device[len("cuda:"):]
    if isinstance(above, ast.Compare):
        cut = isinstance(above.left, ast.Subscript) and isinstance(above.left.slice, ast.Slice)
        return cut or (above.left is node and isinstance(above.ops[0], ast.In | ast.NotIn))
    return isinstance(above, ast.Attribute) and above.attr == "format"


def _is_choice(module: Module, node: ast.expr) -> bool:
    """Whether the word is what a test of `torch.cuda.is_available()` chooses, in place of another device.

    As in `"cuda" if torch.cuda.is_available() else "cpu"`, wherever that goes: the test and the word change together.
    """
    inner: ast.AST = node
    for above in module.names.iter_ancestors(node):
        match above:
            case ast.IfExp(test=test, body=body) if body is inner:
                asked = _asks(module, test)
            case ast.If(test=test, body=block) if inner in block:
                asked = _asks(module, test)
            case ast.Subscript(slice=index) if index is not inner:
                asked = _asks(module, index)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return False
            case _:
                asked = False
        if asked:
            return module.flow.find(node) in _with_other_devices(module)
        inner = above
    return False


def _asks(module: Module, test: ast.expr) -> bool:
    """Whether an expression asks for a CUDA device, itself or by a variable that was given the answer."""
    for part in ast.walk(test):
        if isinstance(part, ast.Attribute | ast.Name) and module.resolve_name(part) == "torch.cuda.is_available":
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            values = [binding.value for binding in module.names.find_bindings(part)]
            calls = [value.func for value in values if isinstance(value, ast.Call)]
            if len(values) == 1 and [module.resolve_name(call) for call in calls] == ["torch.cuda.is_available"]:
                return True
    return False


def _with_other_devices(module: Module) -> set[Hashable]:
    """The values that may also be another device."""
    return {
        module.flow.find(constant)
        for constant in module.iter_nodes(ast.Constant)
        if isinstance(constant.value, str) and constant.value in DEVICES
    }


def _is_of_another_rule(module: Module, node: ast.expr) -> bool:
    return (
        _is_name_of_attribute(module, node)
        or is_accelerator_of_lightning(module, node)
        or is_pattern(module, node)
        or is_part_of_type(module, node)
    )


def _is_name_of_attribute(module: Module, node: ast.expr) -> bool:
    """Whether the word is the "cuda" of `getattr(torch, "cuda")` or `torch.__dict__["cuda"]` (TP101's)."""
    above = module.get_parent(node)
    if not isinstance(above, ast.Call | ast.Subscript):
        return False
    called = module.resolve_name(above.func) if isinstance(above, ast.Call) else ""
    if called in ("builtins.hasattr", "builtins.getattr", "operator.methodcaller"):
        return True
    return (module.resolve_name(above) or "").startswith("torch.")


def _option_hint(module: Module, node: ast.expr) -> str:
    for above in module.names.iter_ancestors(node):
        if isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr == "add_argument":
            return "Launch lines that pass cuda to this option have to pass npu."
    return ""


RULE = Rule(
    code="TP110",
    title="device strings name the NPU",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="torch calls the device npu. A string is rewritten where it reaches torch (an argument, through variables, "
    "options and attributes) or is compared with what does; all such strings of one value change together.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import torch\nc = torch.cuda.current_device\na = 'cuda:{}'.format(c())\nb = f'cuda:{c()}'\n",
            "import torch\nc = torch.npu.current_device\na = 'npu:{}'.format(c())\nb = f'npu:{c()}'\n",
        ),
        (
            "import torch\nn = int(d[len('cuda:'):])\nx = torch.ones(1, device=d)\n",
            "import torch\nn = int(d[len('npu:'):])\nx = torch.ones(1, device=d)\n",
        ),
        (
            "import torch\nok = str(x.device) in {f'cuda:{i}' for i in range(2)}\n",
            "import torch\nok = str(x.device) in {f'npu:{i}' for i in range(2)}\n",
        ),
        (
            "import torch\nm = {f'cuda:{i}': 'cuda:0' for i in range(2)}\ntorch.load('x', map_location=m)\n",
            "import torch\nm = {f'npu:{i}': 'npu:0' for i in range(2)}\ntorch.load('x', map_location=m)\n",
        ),
        (
            "import torch\nname = 'cuda'\ngetattr(torch, name).synchronize()\n",
            "import torch\nname = 'npu'\ngetattr(torch, name).synchronize()\n",
        ),
        (
            "import torch\nfor d in [*('cpu',), *['cuda'] * 2]:\n    torch.ones(1, device=d)\n",
            "import torch\nfor d in [*('cpu',), *['npu'] * 2]:\n    torch.ones(1, device=d)\n",
        ),
        (
            "import torch\ntorch.ones(1).to(':'.join(['cuda', str(n)]))\n",
            "import torch\ntorch.ones(1).to(':'.join(['npu', str(n)]))\n",
        ),
        (
            "import pytest, torch\n@pytest.fixture(params=['cpu', pytest.param('cuda')])\ndef place(request):\n"
            "    return request.param\ndef test_it(place):\n    torch.ones(1, device=place)\n",
            "import pytest, torch\n@pytest.fixture(params=['cpu', pytest.param('npu')])\n"
            "def place(request):\n    return request.param\ndef test_it(place):\n    torch.ones(1, device=place)\n",
        ),
        ("import torch\nd = torch.device('cuda')\n", "import torch\nd = torch.device('npu')\n"),
        (
            'import torch\nd = torch.device("cuda:0" if ok else "cpu")\n',
            'import torch\nd = torch.device("npu:0" if ok else "cpu")\n',
        ),
        (
            "import torch\nx = torch.zeros(2, device=f'cuda:{rank}')\n",
            "import torch\nx = torch.zeros(2, device=f'npu:{rank}')\n",
        ),
        (
            "import torch\nx = torch.zeros(2).to('cuda:%d' % rank)\n",
            "import torch\nx = torch.zeros(2).to('npu:%d' % rank)\n",
        ),
        (
            "import torch\nd = torch.device('cuda:{}'.format(rank))\n",
            "import torch\nd = torch.device('npu:{}'.format(rank))\n",
        ),
        (
            "import torch\nd = torch.device('{}:{}'.format('cuda', r))\n",
            "import torch\nd = torch.device('{}:{}'.format('npu', r))\n",
        ),
        (
            "import torch\nd = torch.device(type='cuda', index=0)\n",
            "import torch\nd = torch.device(type='npu', index=0)\n",
        ),
        (
            "import torch\nd = torch.device('%s:%d' % ('cuda', r))\nx.cuda(r)\n",
            "import torch\nd = torch.device('%s:%d' % ('npu', r))\nx.npu(r)\n",
        ),
        ("import torch\nd = torch.device('cuda:' + str(r))\n", "import torch\nd = torch.device('npu:' + str(r))\n"),
        (
            "def f(device):\n    if device.startswith('cuda:'):\n        return int(device.replace('cuda:', ''))\n",
            "def f(device):\n    if device.startswith('npu:'):\n        return int(device.replace('npu:', ''))\n",
        ),
        ("def f(device):\n    return 'cuda:' in device\n", "def f(device):\n    return 'npu:' in device\n"),
        ("import torch\nd = torch.device(f'cuda')\n", "import torch\nd = torch.device(f'npu')\n"),
        (
            "import torch\nname = 'cuda'\nif name == 'cuda':\n    x = torch.ones(1, device=name)\n",
            "import torch\nname = 'npu'\nif name == 'npu':\n    x = torch.ones(1, device=name)\n",
        ),
        (
            "p.add_argument('--where', default='cuda', choices=['cuda', 'cpu'])\nx.to(p.parse_args().where)\n",
            "p.add_argument('--where', default='npu', choices=['npu', 'cpu'])\nx.to(p.parse_args().where)\n",
        ),
        (
            "import torch\ndef f():\n    return 'cuda' if torch.cuda.is_available() else 'cpu'\n",
            "import torch\ndef f():\n    return 'npu' if torch.npu.is_available() else 'cpu'\n",
        ),
        (
            "import torch\nd = {True: 'cuda', False: 'cpu'}[ok]\ntorch.device(d)\n",
            "import torch\nd = {True: 'npu', False: 'cpu'}[ok]\ntorch.device(d)\n",
        ),
        (
            "import torch\nm = {'gpu': 'cuda', 'cpu': 'cpu'}\ntorch.device(m.get('gpu', 'cpu'))\n",
            "import torch\nm = {'gpu': 'npu', 'cpu': 'cpu'}\ntorch.device(m.get('gpu', 'cpu'))\n",
        ),
        (
            "import torch\nfor d in [f'cuda:{i}' for i in ids]:\n    torch.ones(1, device=d)\n",
            "import torch\nfor d in [f'npu:{i}' for i in ids]:\n    torch.ones(1, device=d)\n",
        ),
        ("if x.device.type == 'cuda':\n    pass\n", "if x.device.type == 'npu':\n    pass\n"),
        (
            "import torch\nwith torch.autocast('cuda', dtype=torch.float16):\n    pass\n",
            "import torch\nwith torch.autocast('npu', dtype=torch.float16):\n    pass\n",
        ),
        (
            "import torch\nm = torch.load('cuda/m.pt', map_location={'cuda:1': 'cuda:0'})\n",
            "import torch\nm = torch.load('cuda/m.pt', map_location={'npu:1': 'npu:0'})\n",
        ),
    ),
    reports=(
        "from rwkv.model import RWKV\nmodel = RWKV('x', strategy='cuda fp16i8 *10 -> cpu fp32')\n",
        "import torch, triton\nname = triton.runtime.driver.active.get_current_target().backend\n"
        "is_nvidia = name == 'cuda'\ndevice = torch.device(name if name != 'hip' else 'cuda')\n",
        "name = 'cuda'\ngetattr(model, name)\n",
        "print(':'.join(['cuda', 'x']))\n",
        "import pytest\n@pytest.fixture(params=['cuda', 'triton'])\ndef kernel(request):\n    return request.param\n",
        "for word in [*['cuda'] * 2]:\n    print(word)\n",
        "import torch\nprint('cuda')\n",
        "import torch\nprint('cuda' if fast else 'cpu')\n",
        "def f():\n    return 'cuda' if gpu.is_available() else 'cpu'\n",
        "import torch\nname = 'cuda'\nprint(name)\n",
        "import torch\nm = torch.load('cuda')\n",
        "import cupy\nx = cupy.zeros(2, device='cuda')\n",
        "import torch\ntags = {'gpu': 'cuda'}\nprint(tags['gpu'])\n",
        "import torch\nrun = {'name': 'cuda', 'on': where}\ntorch.device(run['on'])\nprint(run[key])\n",
        "import torch\nrun = {1: 'cuda', 2: 'resnet'}\ntorch.ones(1, device=run[key])\n",
        "import torch\nnames = [f'cuda:{i}' for i in ids]\nfor name in names:\n    print(name)\n",
        "names = [f'cuda:{index}' for index in range(2)]\n",
        "log('cuda:%d' % number)\n",
        "def f(device):\n    return device.replace('cuda', 'gpu')\n",
        "import torch\nprint('%s:%d' % ('cuda', r), torch.ones(r))\n",
        "class Unit:\n    def to(self, name):\n        return name\nUnit().to('cuda')\n",
    ),
    ignores=(
        "import torch\nname = 'gpu:{}'.format(torch.npu.current_device())  # cuda\n",
        "import torch\nok = str(x.device) in {f'cpu:{i}' for i in range(2)}\n",
        "import torch\nn = int(d[len('cpu:'):])\nx = torch.ones(1, device=d)\n",
        "import torch\nrest = str(x.device)[len('cpu'):]\n",
        "import torch\nd = torch.device('cpu')\n",
        "import torch\nm = torch.load('/x/cuda_dir/m.pt')\n",
        "import torch\nraise SystemExit('please install cuda: see https://x/torch.cuda.html')\n",
        "'cuda'\nimport torch\n",
        "import torch\nlog(f'cuda: {x}')\n",
        "import torch\np.add_argument('--cuda', action='store_true')\n",
        "import torch\nd = torch.device('npu:0')\n",
        "import torch\nx = torch.zeros(2, device=f'{kind}:{rank}')\n",
    ),
)
