"""TP001: `import torch_npu`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.api import find
from torchport.rules import Rule, Style
from torchport.source.module import Module


def check(module: Module, style: Style) -> Iterator[Finding]:
    """One insertion at module level, where the file was changed, imports torch, and does not import torch_npu there.

    A file that others import gets it only where it uses torch_npu itself: who starts it has imported torch_npu before.
    """
    if style is not Style.NPU:
        return
    body = module.tree.body
    if any(_imports(statement, "torch_npu") for statement in body) or not _imports_torch(module):
        return
    if (
        module.project.is_imported(module.text.path)
        and not _is_entry(module)
        and not _names_torch_npu(module)
    ):
        return
    first = torch_import(module)
    if first is not None and not _needs_npu(first):
        offset, before = line_end(module, first), False
    elif first is not None:
        offset, before = module.text.offset(first.lineno, 0), True
    else:
        offset, before = _after_header(module), False
    yield _finding(module, first or (body[0] if body else None), offset, before)


def torch_import(module: Module) -> ast.stmt | None:
    """The first statement at module level that imports torch."""
    return next((statement for statement in module.tree.body if _imports(statement, "torch")), None)


def _finding(module: Module, near: ast.stmt | None, offset: int, before: bool) -> Finding:
    newline = module.text.newline
    text = f"import torch_npu{newline}"
    if not before and offset == len(module.text.data) and not module.text.data.endswith((b"\n", b"\r")):
        text = f"{newline}import torch_npu"
    message = "torch_npu is imported once, at module level: it adds the NPU to torch"
    assert near is not None
    return RULE.finding(module, near, message, [Edit(offset, offset, text.encode(module.text.encoding))])


def _imports(statement: ast.stmt, package: str) -> bool:
    if isinstance(statement, ast.Import):
        return any(alias.name.partition(".")[0] == package for alias in statement.names)
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.level == 0
        and ((statement.module or "").partition(".")[0] == package)
    )


def _is_entry(module: Module) -> bool:
    """Whether the file is started: `if __name__ == "__main__"`, or a `#!` line."""
    if module.text.data.startswith(b"#!"):
        return True
    return any(
        isinstance(statement, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(statement.test))
        for statement in module.tree.body
    )


def _names_torch_npu(module: Module) -> bool:
    """Whether the converted file names torch_npu, or needs it while it is imported."""
    if any(_needs_npu(statement) for statement in module.tree.body):
        return True
    for kind in (ast.Attribute, ast.Name):
        for node in module.all(kind):
            found = find(module.qualified(node) or "")
            if found is not None and found[0].npu.startswith("torch_npu."):
                return True
    return False


def _imports_torch(module: Module) -> bool:
    return any(_imports(node, "torch") for kind in (ast.Import, ast.ImportFrom) for node in module.all(kind))


def _needs_npu(statement: ast.stmt) -> bool:
    """Whether the statement, after conversion, imports from torch.npu and so needs torch_npu before it."""
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").startswith("torch.cuda") or any(
            alias.name == "cuda" for alias in statement.names
        )
    return isinstance(statement, ast.Import) and any(
        alias.name.startswith("torch.cuda") for alias in statement.names
    )


def line_end(module: Module, statement: ast.stmt) -> int:
    """The offset after the line on which the statement ends; statements that share its lines come along."""
    last = statement.end_lineno or statement.lineno
    for other in module.tree.body:
        if other.lineno <= last:
            last = max(last, other.end_lineno or other.lineno)
    while last < len(module.text.lines) and module.text.lines[last - 1].rstrip("\r\n").endswith("\\"):
        last += 1  # a statement that goes on for an empty line
    return module.text.offset(last, 0) + len(module.text.lines[last - 1].encode(module.text.encoding))


def _after_header(module: Module) -> int:
    """The offset after the docstring and the `from __future__` imports; torch is imported further inside only."""
    offset = 0
    for index, statement in enumerate(module.tree.body):
        docstring = (
            index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not docstring and not future:
            return module.text.offset(_first_line(statement), 0)
        offset = line_end(module, statement)
    return offset


def _first_line(statement: ast.stmt) -> int:
    """The line of the statement with its decorators."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
    return statement.lineno


RULE = Rule(
    code="TP001",
    title="torch_npu is imported",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="torch_npu registers the NPU with torch. torch from 2.5 on imports it by itself, unless "
    "TORCH_DEVICE_BACKEND_AUTOLOAD=0; before that, nobody does. So the files that are started import it, and those "
    "that are only imported by others do not need to.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    check=check,
    rewrites=(
        ("import torch\nx.cuda()\n", "import torch\nimport torch_npu\nx.npu()\n"),
        ("'''Doc.'''\nfrom __future__ import annotations\nimport torch\nx.cuda()\n",
         "'''Doc.'''\nfrom __future__ import annotations\nimport torch\nimport torch_npu\nx.npu()\n"),
        ("from torch.cuda import Event\n", "import torch_npu\nfrom torch.npu import Event\n"),
        ("'Doc.'\ndef f():\n    import torch\n    return torch.cuda.Event()\n",
         "'Doc.'\nimport torch_npu\ndef f():\n    import torch\n    return torch.npu.Event()\n"),
        ("try:\n    import torchvision\nexcept ImportError:\n    pass\nimport torch\nx.cuda()\n",
         "try:\n    import torchvision\nexcept ImportError:\n    pass\nimport torch\nimport torch_npu\nx.npu()\n"),
        ("import os; import torch; x.cuda()\ny = 1", "import os; import torch; x.npu()\nimport torch_npu\ny = 1"),
        ("import torch\nimport torch_npu\nx.cuda()\n", "import torch\nimport torch_npu\nx.npu()\n"),
    ),
    unchanged=(
        "import torch\nx = torch.ones(2)\n",
        "import torchvision\n",
        "import mytorchutils\nx = 1\n",
        "from . import torch\n",
        "import os\n",
        "import torch\nimport torch_npu\nx.npu()\n",
        "from torch import nn\n",
    ),
    after=re.compile(rb"npu|NPU|hccl|HCCL"),
)  # fmt: skip
