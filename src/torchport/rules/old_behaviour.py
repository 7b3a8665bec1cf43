"""TP705: what stops, or means something else, with the packages of today, though its names are still there.

`.next()` of iterators, `loss.data[0]`, `torch.stft` without `return_complex`, `Variable(volatile=True)`, and
scripts that insist on a version that is not the one of today.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.removed import find_first_working, read_versions
from torchport.rules import Rule, Style
from torchport.rules.other_way import has_other_way, runs_at_import
from torchport.rules.version_test import decide_test
from torchport.source.module import Module
from torchport.source.names import Binds

_MENTIONS = (b".next()", b".data[0]", b"stft", b"volatile", b"__version__")
_LOSS = re.compile(r"(?:^|_)loss(?:_|\d*$)", re.IGNORECASE)
_ITEM = "A loss has no dimension since torch 0.4: loss.item() is its value."


def check_module(module: Module, style: Style = Style.NPU) -> Iterator[Finding]:
    """One finding for each place; those in a `try` or a branch on a version are left alone."""
    for call in module.iter_nodes(ast.Call):
        for finding in (_check_next(module, call), _check_stft(module, call), _check_volatile(module, call)):
            if finding is not None and not has_other_way(module, call):
                yield finding
    for subscript in module.iter_nodes(ast.Subscript):
        if _is_loss_of_one_number(subscript) and not has_other_way(module, subscript):
            yield _report(module, subscript, "data[0] of a loss stops: it has no dimension since torch 0.4", _ITEM)
    statements: list[ast.Assert | ast.If] = [*module.iter_nodes(ast.Assert), *module.iter_nodes(ast.If)]
    for statement in statements:
        finding = _check_version(module, statement)
        if finding is not None:
            yield finding


def _report(
    module: Module, node: ast.expr | ast.stmt, message: str, hint: str, severity: Severity = Severity.ERROR
) -> Finding:
    where = {"stops": "import"} if severity is Severity.ERROR and runs_at_import(module, node) else {}
    return RULE.make_finding(module, node, message, hint=hint, safety=Safety.REPORT, severity=severity, evidence=where)


# -- calls -----------------------------------------------------------------------------------------------------------


def _check_next(module: Module, call: ast.Call) -> Finding | None:
    """`it.next()` as `next(it)`, where `it` is what `iter` gives and no class of the file has a `next`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "next" or call.args or call.keywords:
        return None
    owner = call.func.value
    if not _is_iterator(module, owner) or any(one.name == "next" for one in module.iter_nodes(ast.FunctionDef)):
        return None
    start, end = module.text.span(call)
    first, last = module.text.span(owner)
    message = "iterators have no next(): it went with Python 2, and from the iterators of DataLoader with torch 1.13"
    shadowed = module.names.scope_of(call).find_owner_scope("next") is not None
    plain = start == first and re.fullmatch(r"\s*\.\s*next\s*\(\s*\)", module.text.decode_range(last, end))
    if shadowed or not plain or any(isinstance(one, ast.JoinedStr) for one in module.names.iter_ancestors(call)):
        return _report(module, call, message, "Use next(iterator).")
    edits = [Edit(start, start, b"next("), Edit(last, end, b")")]
    evidence = {"stops": "import"} if runs_at_import(module, call) else {}
    return RULE.make_finding(module, call, message, edits, evidence=evidence)


def _is_iterator(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return module.resolve_name(node.func) == "builtins.iter" and len(node.args) == 1
    if not isinstance(node, ast.Name):
        return False
    found = module.names.find_bindings(node)
    return bool(found) and all(
        one.how is Binds.VALUE and isinstance(one.value, ast.Call) and _is_iterator(module, one.value) for one in found
    )


def _check_stft(module: Module, call: ast.Call) -> Finding | None:
    if module.resolve_name(call.func) != "torch.stft":
        return None
    given = {keyword.arg for keyword in call.keywords}
    if given & {"return_complex", None} or len(call.args) > 8 or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    hint = (
        "torch.view_as_real(torch.stft(..., return_complex=True)) is what it gave before; istft takes the complex one."
    )
    return _report(module, call, "torch.stft of real numbers stops without return_complex, since torch 2.0", hint)


def _check_volatile(module: Module, call: ast.Call) -> Finding | None:
    if module.resolve_name(call.func) not in ("torch.autograd.Variable", "torch.autograd.variable.Variable"):
        return None
    value = next((keyword.value for keyword in call.keywords if keyword.arg == "volatile"), None)
    if value is None or (isinstance(value, ast.Constant) and not value.value):
        return None
    message = "volatile has no effect since torch 0.4: what follows keeps everything for a backward pass"
    return _report(module, call, message, "Put it under torch.no_grad().", Severity.WARNING)


def _is_loss_of_one_number(node: ast.Subscript) -> bool:
    if not (isinstance(node.slice, ast.Constant) and node.slice.value == 0 and type(node.slice.value) is int):
        return False
    owner = node.value
    if not isinstance(owner, ast.Attribute) or owner.attr != "data" or not isinstance(node.ctx, ast.Load):
        return False
    word = owner.value.id if isinstance(owner.value, ast.Name) else getattr(owner.value, "attr", "")
    return _LOSS.search(word) is not None


# -- versions --------------------------------------------------------------------------------------------------------


def _check_version(module: Module, node: ast.Assert | ast.If) -> Finding | None:
    """A script that ends, or goes a wrong way, because of the versions of today."""
    if not any(isinstance(one, ast.Attribute) and one.attr == "__version__" for one in ast.walk(node.test)):
        return None
    holds = decide_test(module, node.test)
    if isinstance(node, ast.If):
        if holds and isinstance(node.body[0], ast.Raise) and not has_other_way(module, node):
            return _insists(module, node, node.test)
        return None
    if has_other_way(module, node):
        return None
    if holds is False:
        return _insists(module, node, node.test)
    match node.test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=str(wanted))]):
            name = module.resolve_name(left) or ""
            package = name.removesuffix(".__version__")
            if holds is None and name.endswith(".__version__") and "." not in package:
                return _insists_on_other(module, node, package, wanted)
    return None


def _insists(module: Module, node: ast.stmt, test: ast.expr) -> Finding:
    names = (module.resolve_name(one) or "" for one in ast.walk(test) if isinstance(one, ast.Attribute))
    package = next((name.partition(".")[0] for name in names if name.endswith(".__version__")), "torch")
    version = read_versions().get(package, read_versions()["torch"])
    return _report(
        module,
        node,
        f"it insists on a version: {package} is {version} here",
        "torch_npu needs this one. Take the check out, and look at what it was there for.",
    )


def _insists_on_other(module: Module, node: ast.stmt, package: str, wanted: str) -> Finding | None:
    first = find_first_working(package)
    numbers = tuple(int(word) for word in wanted.split(".") if word.isdecimal())
    if first and numbers < first:
        text = f"it insists on {package} {wanted}, which cannot be imported beside torch {read_versions()['torch']}"
        works = ".".join(map(str, first))
        return _report(
            module, node, text, f"{package} {works} can. Take the check out, and look at what it was there for."
        )
    text = f"it insists on {package} {wanted}: whether that works beside torch {read_versions()['torch']} is not known"
    return _report(module, node, text, f"Install {package}=={wanted}, or take the check out.", Severity.WARNING)


RULE = Rule(
    code="TP705",
    title="the packages of today do something else there",
    safety=Safety.SAFE,
    severity=Severity.ERROR,
    why="The script was written for older packages than the ones that torch_npu needs. It has nothing to do with CUDA: "
    "it stops there, or means something else, on any device.",
    reference="https://github.com/pytorch/pytorch/releases",
    check=check_module,
    rewrites=(
        ("images, labels = iter(loader).next()\n", "images, labels = next(iter(loader))\n"),
        ("it = iter(loader)\nx = it.next()\n", "it = iter(loader)\nx = next(it)\n"),
    ),
    reports=(
        "total += loss.data[0]\n",
        "import torch\ns = torch.stft(x, 512, hop_length=128)\n",
        "import torch\nassert torch.__version__ == '1.7.0'\n",
        "import timm\nassert timm.__version__ == '0.3.2'\n",
        "from torch.autograd import Variable\nx = Variable(x, volatile=True)\n",
        "import torch\nif torch.__version__ >= '2':\n    raise RuntimeError('too new')\n",
    ),
    ignores=(
        "class Prefetcher:\n    def next(self):\n        return 1\np = iter(q)\np.next()\n",
        "fetcher = make()\nx = fetcher.next()\n",
        "x = tensor.data[0]\ny = loss.data[1]\nloss.data[0] = 1\n",
        "import torch\ns = torch.stft(x, 512, return_complex=True)\nt = torch.stft(x, 512, **options)\n",
        "import torch\nassert torch.__version__ >= '1.10'\nif torch.__version__ < '2':\n    raise OSError('old')\n",
        "try:\n    x = iter(loader).next()\nexcept AttributeError:\n    x = next(iter(loader))\n",
        "import timm\nassert timm.__version__ >= '0.4'\nprint(timm.__version__)\n",
    ),
    words=_MENTIONS,
)
