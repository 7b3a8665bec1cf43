"""TP403: lightning's Trainer and Fabric, which know no NPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.calls import find_keyword
from torchport.source.module import Module

PACKAGES = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})
_STARTS = frozenset({"Trainer", "Fabric", "LightningCLI"})
_OTHERS = frozenset({"cpu", "tpu", "mps"})  # accelerators that nobody means a GPU by
_TRANSFER = "torch_npu.contrib"


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One finding per file that starts lightning on a GPU; with `Style.NPU` it brings torch_npu's redirection."""
    starts = list(_calls(module))
    if not starts or _has_transfer(module):
        return
    message = "lightning has no accelerator for the NPU"
    place = find_keyword(starts[0], "accelerator") or starts[0]
    if style is not Style.NPU:
        hint = "Import torch_npu.contrib.transfer_to_npu where the script runs on an NPU, and only there."
        yield RULE.make_finding(module, place, message, hint=hint, severity=Severity.WARNING, safety=Safety.REPORT)
        return
    yield RULE.make_finding(
        module,
        place,
        message + ": torch_npu's transfer_to_npu is imported, which makes its GPU accelerator use the NPU",
        [_insertion(module)],
        hint="It redirects torch.cuda in the whole process. torch_npu answers no device capability by itself, which "
        "lightning asks for: 8.0 is what it is told. With several devices lightning looks up their backend, and takes "
        "gloo if there is none: transfer_to_npu leaves none for cuda.",
    )


def brings_torch_npu(module: Module, style: Style) -> bool:
    """Whether this rule imports torch_npu into the file, so that TP001 need not."""
    return any(finding.fix for finding in check_module(module, style))


def is_accelerator_of_lightning(module: Module, node: ast.expr) -> bool:
    """Whether `node` is the accelerator that lightning is told, `"cuda"` say: a name of its own, no device."""
    word = module.get_parent(node)
    if not isinstance(word, ast.keyword) or word.arg != "accelerator":
        return False
    call = module.get_parent(word)
    return isinstance(call, ast.Call) and _is_start(module, call)


def find_lightning_devices(module: Module) -> list[tuple[int, int]]:
    """Byte ranges of the comparisons of a device that lightning names: `fabric.device.type == "cuda"`. It stays cuda
    after transfer_to_npu (torch_npu 2.13.0), which gives lightning the NPU under that name."""
    if not any(_imports(one, PACKAGES) for kind in (ast.Import, ast.ImportFrom) for one in module.iter_nodes(kind)):
        return []
    nodes: list[ast.Compare | ast.Call] = [*module.iter_nodes(ast.Compare), *module.iter_nodes(ast.Call)]
    return [module.text.span(node) for node in nodes if _compares_device(module, node)]


def _compares_device(module: Module, node: ast.Compare | ast.Call) -> bool:
    if isinstance(node, ast.Compare):
        return any(_is_named_by_lightning(module, side) for side in (node.left, *node.comparators))
    function = node.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "startswith"
        and _is_named_by_lightning(module, function.value)
    )


def _is_named_by_lightning(module: Module, node: ast.expr) -> bool:
    """Whether the expression is the device of a Fabric, a Trainer or a LightningModule, its type or its text."""
    while True:
        match node:
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                node = inner
            case ast.Attribute(value=inner, attr="type"):
                node = inner
            case ast.Attribute(attr="root_device"):
                return True
            case ast.Attribute(value=owner, attr="device"):
                return _is_lightning(module, owner)
            case ast.Name():
                values = [one.value for one in module.names.find_bindings(node)]
                if len(values) != 1 or not isinstance(values[0], ast.Attribute):
                    return False
                node = values[0]
            case _:
                return False


def _is_lightning(module: Module, owner: ast.expr) -> bool:
    """Whether the object is one of lightning's, by its making, its annotation or its name."""
    if not isinstance(owner, ast.Name):
        return isinstance(owner, ast.Attribute) and owner.attr in ("fabric", "trainer")
    if owner.id == "self":
        class_ = next((one for one in module.names.iter_ancestors(owner) if isinstance(one, ast.ClassDef)), None)
        return class_ is not None and any(_is_of_lightning(module, parent) for parent in class_.bases)
    for binding in module.names.find_bindings(owner):
        if isinstance(binding.value, ast.Call) and _is_start(module, binding.value):
            return True
        if isinstance(binding.node, ast.arg):
            said = binding.node.annotation
            return (said is not None and _is_of_lightning(module, said)) or owner.id == "fabric"
    return False


def _is_of_lightning(module: Module, node: ast.expr) -> bool:
    top = (module.resolve_name(node) or "").partition(".")[0]
    return top in PACKAGES and not module.project.has_package(top)


def _calls(module: Module) -> Iterator[ast.Call]:
    for call in module.iter_nodes(ast.Call):
        if _is_start(module, call):
            said = find_keyword(call, "accelerator") or _find_in_table(module, call)
            if not (isinstance(said, ast.Constant) and said.value in _OTHERS):
                yield call


def _find_in_table(module: Module, call: ast.Call) -> ast.expr | None:
    """The accelerator in a table that is written in this file: `Trainer(**settings)`."""
    given = [module.flow.find(word.value) for word in call.keywords if word.arg is None]
    for table in module.iter_nodes(ast.Dict) if given else ():
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "accelerator" and module.flow.find(table) in given:
                return value
    return None


def _is_start(module: Module, call: ast.Call) -> bool:
    top, *rest = (module.resolve_name(call.func) or "").split(".")
    return top in PACKAGES and not module.project.has_package(top) and not _STARTS.isdisjoint(rest[-2:])


def _has_transfer(module: Module) -> bool:
    return any(
        (origin.module or "").startswith(_TRANSFER) and any(alias.name == "transfer_to_npu" for alias in origin.names)
        for origin in module.iter_nodes(ast.ImportFrom)
    ) or any(
        alias.name == f"{_TRANSFER}.transfer_to_npu"
        for statement in module.iter_nodes(ast.Import)
        for alias in statement.names
    )


def _insertion(module: Module) -> Edit:
    """The lines before the first import of lightning at module level, or before the first statement that runs."""
    newline, body = module.text.newline, module.tree.body
    place = next((statement for statement in body if _imports(statement, PACKAGES)), None)
    if place is None:
        place = next(statement for statement in body if not _is_header(statement))
    before = body[: body.index(place)]
    lines = [
        *([] if any(_binds(statement, "os") for statement in before) else ["import os"]),
        *([] if any(_binds(statement, "torch") for statement in before) else ["import torch"]),
        *([] if any(_binds(statement, "torch_npu") for statement in before) else ["import torch_npu"]),
        "from torch_npu.contrib import transfer_to_npu",
        'os.environ.setdefault("TORCH_NPU_DEVICE_CAPABILITY", "8.0")',
        'torch.distributed.Backend.default_device_backend_map["cuda"] = "hccl"',
    ]
    offset = module.text.position_to_offset(_first_line(place), 0)
    text = newline.join(lines) + newline
    return Edit(offset, offset, text.encode(module.text.encoding))


def _imports(statement: ast.stmt, packages: frozenset[str]) -> bool:
    """Whether the statement imports something of one of the packages."""
    if isinstance(statement, ast.Import):
        return any(alias.name.partition(".")[0] in packages for alias in statement.names)
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.level == 0
        and (statement.module or "").partition(".")[0] in packages
    )


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether the statement is an `import name` that gives the module its own name."""
    return isinstance(statement, ast.Import) and any(
        alias.name == name and alias.asname in (None, name) for alias in statement.names
    )


def _is_header(statement: ast.stmt) -> bool:
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return docstring or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def _first_line(statement: ast.stmt) -> int:
    """The line of the statement with its decorators."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
    return statement.lineno


_HEAD = (  # beside `import torch_npu`, which examples leave out
    "import os\nimport torch\nfrom torch_npu.contrib import transfer_to_npu\n"
    'os.environ.setdefault("TORCH_NPU_DEVICE_CAPABILITY", "8.0")\n'
    'torch.distributed.Backend.default_device_backend_map["cuda"] = "hccl"\n'
)

RULE = Rule(
    code="TP403",
    title="lightning runs on the NPU through transfer_to_npu",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why='lightning 2.6 has accelerators for CPU, CUDA, MPS and TPU. On an NPU accelerator="gpu" fails, and "auto" '
    "trains on the CPU without a word. torch_npu's transfer_to_npu lets torch.cuda mean the NPU in the process that "
    "imports it, so that the CUDA accelerator works; the file that makes the Trainer or Fabric imports it.",
    reference="https://github.com/Ascend/pytorch",
    words=(b"lightning",),
    check=check_module,
    rewrites=(
        (
            'import torch, lightning as L\nt = L.Trainer(accelerator="gpu", devices=1)\n',
            _HEAD + 'import torch, lightning as L\nt = L.Trainer(accelerator="gpu", devices=1)\n',
        ),
        (
            "from pytorch_lightning import Trainer\nTrainer()\n",
            _HEAD + "from pytorch_lightning import Trainer\nTrainer()\n",
        ),
        (
            "'Doc.'\ndef f(a):\n    from lightning.fabric import Fabric\n    return Fabric(accelerator=a)\n",
            f"'Doc.'\n{_HEAD}def f(a):\n    from lightning.fabric import Fabric\n    return Fabric(accelerator=a)\n",
        ),
        (
            "import os\nimport torch\nimport lightning.pytorch as pl\nx.cuda()\npl.Trainer(accelerator='cuda')\n",
            "import os\nimport torch\n"
            + _HEAD.removeprefix("import os\nimport torch\n")
            + "import lightning.pytorch as pl\nx.npu()\npl.Trainer(accelerator='cuda')\n",
        ),
    ),
    reports=(),
    ignores=(
        'import lightning as L\nL.Trainer(accelerator="cpu")\n',
        "import lightning as L\nclass M(L.LightningModule):\n    pass\n",
        "from transformers import Trainer\nTrainer()\n",
        "from torch_npu.contrib import transfer_to_npu\nimport lightning as L\nL.Trainer(accelerator='gpu')\n",
        "from .lightning import Trainer\nTrainer()\n",
    ),
)
