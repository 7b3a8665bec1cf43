"""TP101: names of `torch.cuda` (and what belongs to it) become those of `torch.npu`, by the interface table."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.api import Api, Status, find_api
from torchport.rules import CUDA, Rule, Style
from torchport.rules.call_arguments import argument_edits
from torchport.rules.npu_branches import find_npu_ranges, is_in_ranges
from torchport.source.module import Module

_METHODS = ("torch.nn.Module.cuda", "torch.Tensor.cuda", "torch.Tensor.is_cuda")
_ROOTS = ("torch.cuda.", "torch.backends.cuda.", "torch.backends.cudnn.", "torch._C._cuda")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """Findings for every expression that means a CUDA name; imports are TP102's."""
    for attribute in module.iter_nodes(ast.Attribute):
        if not _is_whole(module, attribute):
            continue
        name = module.resolve_name(attribute)
        if name in _METHODS and _describes_override(module, attribute):
            continue
        if name is not None and (finding := _judge(module, attribute, name, style)) is not None:
            yield finding
    for call in module.iter_nodes(ast.Call):
        yield from _picked(module, call, style)
        if isinstance(call.func, ast.Name) and style is Style.NPU:
            yield from _imported(module, call, call.func)
        asked = module.resolve_name(call.func) == "builtins.hasattr" and len(call.args) == 2
        name = _asked(module, call) if asked else module.resolve_name(call)
        yield from _indirect(module, call, name, call.args[-1] if call.args else None, style)
    for subscript in module.iter_nodes(ast.Subscript):
        yield from _indirect(module, subscript, module.resolve_name(subscript), subscript.slice, style)


def _imported(module: Module, call: ast.Call, function: ast.Name) -> Iterator[Finding]:
    """A call by the name that an import gives, which itself is converted where it is imported."""
    name = module.resolve_name(function)
    found = find_api(name) if name is not None and name.startswith("torch.") else None
    if found is None or found[1] or found[0].status in (Status.MISSING, Status.KEEP):
        return
    edits, refused = argument_edits(module, call, found[0])
    if refused:
        yield RULE.make_finding(
            module,
            call,
            f"{name} is {found[0].npu} on the NPU, but {refused}",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
            hint="Write the call as the NPU's function takes it.",
        )
    elif edits:
        yield RULE.make_finding(module, call, f"{found[0].npu} has other names for its arguments", edits)


def _describes_override(module: Module, node: ast.Attribute) -> bool:
    """Whether this is in a decorator of a method that keeps its name: `@wraps(torch.nn.Module.cuda)`."""
    inner: ast.AST = node
    for above in module.names.iter_ancestors(node):
        if isinstance(above, ast.FunctionDef):
            return inner in above.decorator_list and above.name == node.attr
        inner = above
    return False


def _is_whole(module: Module, node: ast.Attribute) -> bool:
    """Whether the attribute is the longest part of its chain that has a meaning."""
    above = module.get_parent(node)
    return not (isinstance(above, ast.Attribute) and module.resolve_name(above) is not None)


def _judge(module: Module, node: ast.Attribute, name: str, style: Style) -> Finding | None:
    found = find_api(name)
    if found is None:
        if name.startswith(_ROOTS):
            return RULE.make_finding(
                module,
                node,
                f"{name} is not in the interface table: nothing is known about it on the NPU",
                hint="Look for a counterpart in torch.npu, or guard it so that only CUDA reaches it.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
        return None
    row, rest = found
    if not is_applicable(module, row):
        return None
    if row.status is Status.MISSING:
        return RULE.make_finding(
            module,
            node,
            f"{row.name} does not exist on the NPU",
            hint=_sentence(row.note),
            safety=Safety.REPORT,
            severity=Severity.ERROR,
        )
    if row.status is Status.KEEP:
        return RULE.make_finding(
            module, node, f"{row.name} is kept: {row.note}", safety=Safety.REPORT, severity=Severity.INFO
        )
    target = target_of(row, style) + (f".{rest}" if rest else "")
    if target == name:
        if row.status is not Status.REVIEW or style is not Style.NPU:
            return None
        return RULE.make_finding(
            module, node, f"{name}: {row.note}", hint="Check this use.", safety=Safety.REPORT, severity=Severity.WARNING
        )
    edits = chain_edits(module, node, name, target, style)
    refused = ""
    call = module.get_parent(node)
    if style is Style.NPU and not rest and isinstance(call, ast.Call) and call.func is node:
        more, refused = argument_edits(module, call, row)
        edits += more
    if refused:
        return RULE.make_finding(
            module,
            node,
            f"{name} is {target} on the NPU, but {refused}",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
            hint="Write the call as the NPU's function takes it.",
        )
    if not edits:
        return None
    review = row.status is Status.REVIEW
    return RULE.make_finding(
        module,
        node,
        f"{name} is {target} on the NPU" + (f", but {row.note}" if review else ""),
        edits,
        hint="Check this use." if review else "",
        safety=Safety.REVIEW if review else Safety.SAFE,
        severity=Severity.WARNING if review else None,
    )


def is_applicable(module: Module, row: Api) -> bool:
    """Whether the file uses the name without which the row's section means nothing."""
    if not row.only_with:
        return True
    found = [node for node in module.iter_nodes(ast.Attribute) if module.resolve_name(node) == row.only_with]
    beside = find_npu_ranges(module) if found else []
    return any(not is_in_ranges(beside, module.text.span(node)[0]) for node in found)


def target_of(row: Api, style: Style) -> str:
    """What a row's name is in the chosen style."""
    return row.npu if style is Style.NPU else row.agnostic


def convert_name(name: str, style: Style) -> str:
    """A dotted name after conversion; the name itself where nothing is known about it."""
    found = find_api(name)
    if found is None or found[0].status in (Status.MISSING, Status.KEEP):
        return name
    return target_of(found[0], style) + (f".{found[1]}" if found[1] else "")


def chain_edits(module: Module, node: ast.Attribute, name: str, target: str, style: Style) -> list[Edit | None]:
    """Edits that make the chain `node`, which means `name`, mean `target`; None among them where that is impossible.

    What the chain starts with is converted where it is bound (an import, an assignment), so only the words after it
    are replaced; a chain that starts with `torch` itself is replaced as a whole if the number of words changes.
    """
    attributes: list[ast.Attribute] = []
    base: ast.expr = node
    while isinstance(base, ast.Attribute) and not module.names.is_torch_of_another(base):
        attributes.insert(0, base)
        base = base.value
    meaning = "torch" if isinstance(base, ast.Attribute) else module.resolve_name(base) or ""
    start = convert_name(meaning, style).split(".")
    if style is Style.AGNOSTIC and meaning != "torch" and "(" in target:
        return []  # an alias of torch.cuda: where it is bound says what to do
    words = target.split(".")
    old = name.split(".")[-len(attributes) :]
    new = words[len(start) :]
    if words[: len(start)] == start and len(new) == len(old):
        differ = [index for index, word in enumerate(old) if word != new[index]]
        if not differ:  # what the chain starts with is converted where it is bound
            return []
        first, last = differ[0], differ[-1]
        begin = module.text.span(attributes[first])[1] - len(old[first].encode())
        end = module.text.span(attributes[last])[1]
        if module.text.decode_range(begin, end) == ".".join(old[first : last + 1]):
            return [Edit(begin, end, ".".join(new[first : last + 1]).encode())]
        return [module.attribute_edit(attributes[index], new[index]) for index in differ]
    # torch_npu is a name of its own, imported at module level; torch is only there under the name it was imported as.
    of_torch = words[0] == "torch" and meaning == "torch"
    if isinstance(base, ast.Name) and (of_torch or words[0] == "torch_npu"):
        begin, end = module.text.span(node)
        if module.text.decode_range(begin, end).replace(" ", "") != ".".join([base.id, *old]):
            return [None]
        return [Edit(begin, end, ".".join([base.id if of_torch else words[0], *words[1:]]).encode())]
    return [None]


def _asked(module: Module, call: ast.Call) -> str | None:
    """The name that `hasattr(torch, "cuda")` asks for."""
    base, word = module.resolve_name(call.args[0]), call.args[1]
    return f"{base}.{word.value!s}" if base and isinstance(word, ast.Constant) else None


def _indirect(
    module: Module, node: ast.expr, name: str | None, word: ast.expr | None, style: Style
) -> Iterator[Finding]:
    """`getattr(torch, "cuda")`, `import_module("torch.cuda.amp")`, `torch.__dict__["cuda"]`."""
    if not isinstance(word, ast.Constant) or not isinstance(word.value, str):
        return
    if name is None or not name.endswith(word.value):
        return
    target = convert_name(name, style)
    if target == name or "(" in target:
        return
    if word.value == name:
        new = target if target.count(".") == 1 else target.replace("torch.npu.", "torch_npu.npu.", 1)
    elif target.count(".") == name.count("."):
        new = target.split(".")[-1]
    else:
        return
    if new == word.value:  # getattr(torch.cuda, "Stream"): the name before it is converted where it stands
        return
    yield RULE.make_finding(module, node, f"{name} is {target} on the NPU", [module.string_edit(word, word.value, new)])


def _picked(module: Module, call: ast.Call, style: Style) -> Iterator[Finding]:
    """`operator.attrgetter("cuda.is_available")(torch)`."""
    match call:
        case ast.Call(func=ast.Call(func=getter, args=[ast.Constant(value=str() as text) as word]), args=[owner]):
            if module.resolve_name(getter) != "operator.attrgetter" or module.resolve_name(owner) != "torch":
                return
            target = convert_name(f"torch.{text}", style).removeprefix("torch.")
            if target != text and "(" not in target and not target.startswith("torch_npu"):
                edits = [module.string_edit(word, text, target)]
                yield RULE.make_finding(module, call, f"torch.{text} is torch.{target} on the NPU", edits)
        case _:
            pass


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


RULE = Rule(
    code="TP101",
    title="torch.cuda names become torch.npu names",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="torch.npu offers the interface of torch.cuda. Calling torch.cuda without a GPU raises or answers False.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        ("import torch\nok = torch.cuda.is_available()\n", "import torch\nok = torch.npu.is_available()\n"),
        ("import torch\nt = torch.cuda\nt.synchronize()\n", "import torch\nt = torch.npu\nt.synchronize()\n"),
        ("import torch\ng = torch.cuda.CUDAGraph()\n", "import torch\ng = torch.npu.NPUGraph()\n"),
        (
            "import torch\nwith torch.cuda.amp.autocast():\n    pass\n",
            "import torch\nwith torch.npu.amp.autocast():\n    pass\n",
        ),
        ("import torch\nf = getattr(torch, 'cuda').Stream\n", "import torch\nf = getattr(torch, 'npu').Stream\n"),
        (
            "import torch\nif hasattr(torch, 'cuda') and hasattr(torch.cuda, 'amp'):\n    pass\n",
            "import torch\nif hasattr(torch, 'npu') and hasattr(torch.npu, 'amp'):\n    pass\n",
        ),
        (
            "import mod\nmod.torch.cuda.synchronize()\npatch(mod.torch.cuda, 'nvtx')\n",
            "import mod\nmod.torch.npu.synchronize()\npatch(mod.torch.npu, 'nvtx')\n",
        ),
        ("import torch\nd = torch.__dict__['cuda']\n", "import torch\nd = torch.__dict__['npu']\n"),
        (
            "import importlib\nm = importlib.import_module('torch.cuda.amp')\n",
            "import importlib\nm = importlib.import_module('torch_npu.npu.amp')\n",
        ),
        (
            "import torch\ntry:\n    pass\nexcept torch.cuda.OutOfMemoryError:\n    pass\n",
            "import torch\ntry:\n    pass\nexcept torch.OutOfMemoryError:\n    pass\n",
        ),
        (
            "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n",
            "import torch\ntorch.npu.matmul.allow_hf32 = True\n",
        ),
        ("import torch\ntorch.cuda.nvtx.range_push('x')\n", "import torch\ntorch.npu.mstx.range_push('x')\n"),
        (
            "import torch\nn = torch.cuda.get_device_name(device = 0)\n",
            "import torch\nn = torch.npu.get_device_name(device_name = 0)\n",
        ),
        (
            "from torch.cuda import StreamContext as C\nwith C(stream=s):\n    pass\n",
            "from torch_npu.npu import StreamContext as C\nwith C(stream_ctx=s):\n    pass\n",
        ),
        (
            "import torch\nwith torch.cuda.nvtx.range('e {} {n}', 3, n=4):\n    pass\n",
            "import torch\nwith torch.npu.mstx.annotate('e {} {n}'.format(3, n=4)):\n    pass\n",
        ),
        (
            "import torch\nprint(f'{torch.cuda.memory_allocated() / 2**20:.1f} MiB')\n",
            "import torch\nprint(f'{torch.npu.memory_allocated() / 2**20:.1f} MiB')\n",
        ),
    ),
    reports=(
        "import torch\ng = torch.cuda.CUDAGraph(keep_graph=True)\n",
        "import torch\nwith torch.cuda.graph(g, p, s, 'global'):\n    pass\n",
        "import torch\ntorch.backends.cudnn.benchmark = True\n",
        "import torch\nmajor = torch.cuda.get_arch_list()\n",
        "import torch\nassert torch.version.cuda\n",
        "import torch\nd = 'npu' if torch.npu.is_available() else 'gpu' if torch.cuda.is_available() else 'cpu'\n",
    ),
    ignores=(
        "import torch\nok = torch.npu.is_available()\n",
        "import numba\nnumba.cuda.synchronize()\n",
        "import horovod.torch\nhorovod.torch.cuda.synchronize()\n",
        "import cupy as torch\ntorch.cuda.Device(0).use()\n",
        "import torch\nmodel.cuda_stream.synchronize()\n",
        "class torch:\n    class cuda:\n        pass\ntorch.cuda.is_available\n",
        "def torch():\n    pass\ntorch.cuda.is_available()\n",
        "import torch\ntext = 'see https://download.pytorch.org/whl/torch.cuda.html'\n",
        "import torch  # torch.cuda.is_available() is not called here\n",
        "import torch\nd = {'torch': torch, 'cuda': 1}['cuda']\n",
        "import functools, torch\nclass M(torch.nn.Module):\n    @functools.wraps(torch.nn.Module.cuda)\n"
        "    def cuda(self):\n        pass\n",
    ),
)
