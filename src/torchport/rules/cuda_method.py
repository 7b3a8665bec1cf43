"""TP120: `.cuda()` of tensors and modules."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.accelerator_name import ACCELERATOR
from torchport.rules.receivers import Owner, Receivers
from torchport.rules.roles import Roles, find_roles
from torchport.source.calls import find_keyword
from torchport.source.module import Module

_ASK = frozenset({"builtins.hasattr", "builtins.getattr"})
_KEYWORDS = {"device", "non_blocking", "memory_format"}


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every call of a method `cuda` that is torch's or may be."""
    receivers = Receivers(module, "cuda")
    # Only where a device is given: what flows where is a third of the work on a file with calls of cuda().
    roles = functools.cache(lambda: find_roles(module, "device"))
    changed: list[ast.expr] = []  # those of which the method becomes npu
    for attribute in module.iter_nodes(ast.Attribute):
        above = module.get_parent(attribute)
        called = isinstance(above, ast.Call) and above.func is attribute
        handed_on = attribute.attr == "cuda" and isinstance(attribute.ctx, ast.Load) and not called
        if handed_on and module.resolve_name(attribute) is None and receivers.is_proven(attribute.value):
            edits = [module.attribute_edit(attribute, "npu") if style is Style.NPU else None]
            yield RULE.make_finding(module, attribute, "the method cuda is the method npu on the NPU", edits)
    for call in module.iter_nodes(ast.Call):
        method = call.func
        if not isinstance(method, ast.Attribute) or method.attr != "cuda" or not _fits(call):
            continue
        owner = receivers.resolve_owner(method.value)
        if owner is Owner.USER or (owner is Owner.OTHER and _is_name_of_package(module, method.value)):
            continue
        used = owner is Owner.OTHER and receivers.is_used_as_module(method.value)
        if owner is Owner.OTHER and not used:
            yield RULE.make_finding(
                module,
                call,
                f"nothing is known about what {_origin(module, method.value)} makes, so cuda() stays",
                hint="If it is a tensor or a torch module, write npu(); --assume-modules does it for all such calls.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
                evidence={"offer": "npu"},
            )
            continue
        held = owner is Owner.UNKNOWN and receivers.is_part_of_owner(method.value)
        if owner is Owner.UNKNOWN and not held:
            yield RULE.make_finding(
                module,
                call,
                "a class of the project has a method cuda of its own, and nothing shows whose this is",
                hint="If the object is a tensor or a torch module, write npu() here.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
            continue
        finding = _finding(module, call, method, roles, style, moved=owner is Owner.MOVED)
        if used:
            hint = "Nothing is known about its class; the file takes it for a module of torch."
            finding = dataclasses.replace(finding, safety=Safety.REVIEW, hint=hint)
        elif held:
            hint = "The method moves what its object holds: check that this is a tensor or module."
            finding = dataclasses.replace(finding, safety=Safety.REVIEW, hint=hint)
        elif finding.fix and receivers.defined_elsewhere:
            hint = "A class of another file has a method cuda of its own: check that this is a tensor or module."
            finding = dataclasses.replace(finding, safety=Safety.REVIEW, hint=hint)
        if any(edit.replacement == b"npu" for edit in finding.fix):
            changed.append(method.value)
        yield finding
    yield from _asked(module, changed, receivers)


def _asked(module: Module, changed: list[ast.expr], receivers: Receivers) -> Iterator[Finding]:
    """The findings on `hasattr(x, "cuda")` and `getattr(x, "cuda")`, where `x.cuda()` is rewritten or x is torch's, and
    on `operator.methodcaller("cuda")`, where nothing else has such a method."""
    values: set[Hashable] | None = None
    for call in module.iter_nodes(ast.Call):
        called = module.resolve_name(call.func)
        if called == "operator.methodcaller" and not receivers.defined_here and not receivers.defined_elsewhere:
            match call.args:
                case [ast.Constant(value="cuda") as named]:
                    edits = [module.string_edit(named, "cuda", "npu")]
                    yield RULE.make_finding(module, call, "the method that is called is npu on the NPU", edits)
                case _:
                    pass
        if called not in _ASK or len(call.args) < 2:
            continue
        who, word = call.args[:2]
        if not isinstance(word, ast.Constant) or word.value != "cuda":
            continue
        values = {module.flow.find(node) for node in changed} if values is None else values
        above = module.get_parent(call)
        called_at_once = called == "builtins.getattr" and isinstance(above, ast.Call) and above.func is call
        ours = called_at_once and receivers.resolve_owner(who) is Owner.TORCH
        if ours or module.flow.find(who) in values:
            edits = [module.string_edit(word, "cuda", "npu")]
            yield RULE.make_finding(module, call, "the method that is asked for is called npu on the NPU", edits)


def _origin(module: Module, node: ast.expr) -> str:
    """The dotted name of what gives the receiver its value."""
    if isinstance(node, ast.Name):
        values = [binding.value for binding in module.names.find_bindings(node) if binding.value is not None]
        node = values[0] if values and module.resolve_name(node) is None else node
    name = module.resolve_name(node.func) if isinstance(node, ast.Call) else module.resolve_name(node)
    return name or module.get_source(node)[:60]


def _is_name_of_package(module: Module, node: ast.expr) -> bool:
    """Whether the receiver is a package itself: `numba.cuda(...)` is no method of an object."""
    return isinstance(node, ast.Name) and any(
        isinstance(binding.node, ast.Import) for binding in module.names.find_bindings(node)
    )


def _finding(
    module: Module, call: ast.Call, method: ast.Attribute, roles: Callable[[], Roles], style: Style, *, moved: bool
) -> Finding:
    device = _device(call)
    by_name = device is not None and roles().holds_name(device)
    if style is Style.AGNOSTIC:
        return _agnostic(module, call, method, by_name)
    if moved and not (by_name and len(call.args) < 2):
        return _by_to(module, call, method, device)
    if by_name and len(call.args) < 2:
        # Module.npu() takes an index only; to() takes what a device is written as, for tensors and modules.
        return RULE.make_finding(
            module, call, "cuda(device) is to(device) on the NPU", [module.attribute_edit(method, "to")]
        )
    return RULE.make_finding(module, call, "cuda() is npu() on the NPU", [module.attribute_edit(method, "npu")])


def _by_to(module: Module, call: ast.Call, method: ast.Attribute, device: ast.expr | None) -> Finding:
    """`x.cuda(...)` as `x.to("npu", ...)`, which objects of other libraries have as well as torch's."""
    edits: list[Edit | None] = [module.attribute_edit(method, "to")]
    if device is None:
        _, end = module.text.span(method)
        opening = end + module.text.decode_range(end, module.text.span(call)[1]).find("(") + 1
        edits.append(Edit(opening, opening, b'"npu", ' if call.keywords else b'"npu"'))
    elif isinstance(device, ast.Constant) and isinstance(device.value, int):
        edits.append(Edit(*module.text.span(device), f'"npu:{device.value}"'.encode()))
    else:  # to(index) is a device of the accelerator
        return RULE.make_finding(
            module,
            call,
            "cuda(index) is to(index) on the NPU",
            edits,
            safety=Safety.REVIEW,
            hint="cuda(None) is the current device, to(None) does nothing: where it may be None, write npu.",
        )
    if any(isinstance(above, ast.JoinedStr) for above in module.names.iter_ancestors(call)):
        edits = [None]  # quotes inside an f-string may end it
    return RULE.make_finding(
        module, call, 'cuda() is to("npu") here: objects of a library that is used have no npu()', edits
    )


def _agnostic(module: Module, call: ast.Call, method: ast.Attribute, by_name: bool) -> Finding:
    edits: list[Edit | None] = [module.attribute_edit(method, "to")]
    device = _device(call)
    if device is None:
        _, end = module.text.span(method)
        opening = end + module.text.decode_range(end, module.text.span(call)[1]).find("(") + 1
        edits.append(Edit(opening, opening, (ACCELERATOR + (", " if call.keywords else "")).encode()))
    elif isinstance(device, ast.Constant) and isinstance(device.value, int):
        edits.append(Edit(*module.text.span(device), f'f"{{{ACCELERATOR}}}:{device.value}"'.encode()))
    elif not by_name:  # torch.device(index) is a device of the accelerator
        return RULE.make_finding(
            module,
            call,
            "cuda(index) is to(index) on any device",
            edits,
            safety=Safety.REVIEW,
            hint=f"cuda(None) is the current device, to(None) does nothing: where it may be None, write {ACCELERATOR}.",
        )
    return RULE.make_finding(module, call, "cuda() is to(device) on any device", edits)


def _fits(call: ast.Call) -> bool:
    """Whether the arguments are those of torch's method."""
    return len(call.args) <= 2 and all(word.arg in _KEYWORDS for word in call.keywords)


def _device(call: ast.Call) -> ast.expr | None:
    if call.args:
        return call.args[0]
    return find_keyword(call, "device")


RULE = Rule(
    code="TP120",
    title=".cuda() of tensors and modules becomes .npu()",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="torch_npu gives tensors, modules and storages a method npu(). A class of the script that has a method cuda of "
    "its own keeps it.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        ("import torch\nx = torch.ones(2).cuda()\n", "import torch\nx = torch.ones(2).npu()\n"),
        ("def f(x):\n    return x.cuda(non_blocking=True)\n", "def f(x):\n    return x.npu(non_blocking=True)\n"),
        ("def f(model, args):\n    model.cuda(args.gpu)\n", "def f(model, args):\n    model.npu(args.gpu)\n"),
        (
            "import torch\nd = torch.device('cpu')\nmodel.cuda(d)\n",
            "import torch\nd = torch.device('cpu')\nmodel.to(d)\n",
        ),
        ("import torch\nmove = torch.ones(2).cuda\nmove()\n", "import torch\nmove = torch.ones(2).npu\nmove()\n"),
        (
            "class T:\n    def __init__(self, args):\n        self.cuda = args.cuda\n"
            "    def f(self, x):\n        return x.cuda() if self.cuda else x\n",
            "class T:\n    def __init__(self, args):\n        self.cuda = args.cuda\n"
            "    def f(self, x):\n        return x.npu() if self.cuda else x\n",
        ),
        (
            "def f(x):\n    return x.cuda() if hasattr(x, 'cuda') else x\n",
            "def f(x):\n    return x.npu() if hasattr(x, 'npu') else x\n",
        ),
        ("xs = [x.cuda() for x in xs]\n", "xs = [x.npu() for x in xs]\n"),
        (
            "from torch import nn\nclass M(nn.Module):\n    def cuda(self, d=None):\n        return super().cuda(d)\n",
            "from torch import nn\nclass M(nn.Module):\n    def cuda(self, d=None):\n        return super().npu(d)\n",
        ),
        ("import timm\nm = timm.create_model('x').cuda()\n", "import timm\nm = timm.create_model('x').npu()\n"),
        (
            "import copy, torch\nm = copy.deepcopy(torch.ones(2)).cuda()\n",
            "import copy, torch\nm = copy.deepcopy(torch.ones(2)).npu()\n",
        ),
        (
            "from torch_geometric.data import Data\nd = Data(x=1).cuda()\n",
            'from torch_geometric.data import Data\nd = Data(x=1).to("npu")\n',
        ),
        (
            "import torch_geometric\nfor batch in loader:\n    batch = batch.cuda(non_blocking=True)\n",
            'import torch_geometric\nfor batch in loader:\n    batch = batch.to("npu", non_blocking=True)\n',
        ),
        (
            "import torch\nclass Q:\n    def cuda(self):\n        pass\nx = torch.ones(2)\nx = x.cuda()\n",
            "import torch\nclass Q:\n    def cuda(self):\n        pass\nx = torch.ones(2)\nx = x.npu()\n",
        ),
        (
            "from nets import Net\nfrom torch.nn.parallel import DistributedDataParallel\nnet = Net(\n    1).cuda(0)\n"
            "net = DistributedDataParallel(net)\n",
            "from nets import Net\nfrom torch.nn.parallel import DistributedDataParallel\nnet = Net(\n    1).npu(0)\n"
            "net = DistributedDataParallel(net)\n",
        ),
        (
            "class Q:\n    def cuda(self):\n        self.x = self.x.cuda()\n        return self\nq = Q().cuda()\n",
            "class Q:\n    def cuda(self):\n        self.x = self.x.npu()\n        return self\nq = Q().cuda()\n",
        ),
        (
            "import torch\nclass Q:\n    def cuda(self):\n        pass\ny = torch.ones(1)\ny.cuda()\n",
            "import torch\nclass Q:\n    def cuda(self):\n        pass\ny = torch.ones(1)\ny.npu()\n",
        ),
    ),
    reports=(
        "from nets import Net\nnet = Net().cuda(0)\nnet.show()\n",
        "class P:\n    def cuda(self):\n        pass\nclass Q:\n    def cuda(self):\n        self.x = self.x.cuda()\n",
        "class Q:\n    def cuda(self, other):\n        other.cuda()\n",
        "class Q:\n    def cuda(self):\n        return self\ndef f(x):\n    return x.cuda()\n",
        "class Q:\n    def __init__(self, m):\n        self.cuda = m.cuda\ndef f(x):\n    return x.cuda()\n",
        "import unknownlib\nnet = unknownlib.Net().cuda()\n",
        "from unknownlib import Net\nnet = Net()\nnet.cuda()\n",
        "import copy, unknownlib\nnet = copy.deepcopy(unknownlib.Net()).cuda()\n",
        "import cupy\na = cupy.zeros(3).cuda()\n",
    ),
    ignores=(
        "import numba\nnumba.cuda(3)\n",
        "def cuda(x):\n    return x\ncuda(3)\n",
        "class Q:\n    def cuda(self):\n        return self\nQ().cuda()\n",
        "class Q:\n    def cuda(self):\n        return self\nq = Q()\nq.cuda()\n",
        "class Q:\n    def cuda(self):\n        return self\n    def go(self):\n        return self.cuda()\n",
        "if args.cuda:\n    pass\n",
        "if hasattr(args, 'cuda'):\n    pass\n",
        "x.cuda(1, 2, 3)\n",
        "x.npu()\n",
    ),
)
