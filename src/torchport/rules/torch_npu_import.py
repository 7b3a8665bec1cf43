"""TP001: `import torch_npu`."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.api import find_api
from torchport.knowledge.arguments import load_role
from torchport.rules import Rule, Style, hidden_cards, lightning_accelerator, torch_cuda_import
from torchport.rules.torch_cuda_api import is_applicable
from torchport.source.definitions import Definitions
from torchport.source.module import Module
from torchport.source.names import Scope

_ASKS_FOR_ITS_NAME = re.compile(rb"^if\b[^:]*\b__name__\b", re.MULTILINE)
# At the beginning of a line: a loop or block, a call, a value other than a logger, or several statements.
_TESTS = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$")  # pytest imports them
_DOES_SOMETHING = re.compile(
    rb"^(?:(?:for|while|with)\b"
    rb"|(?!(?:def|class|from|if|elif|assert|raise|del|except|async)\b)\w[^\n=(#]*\("
    rb"|(?!\w+[ \t]*=[ \t]*logging\.getLogger\()\w[^\n=(#]*=[^=]"
    rb"|\w[^\n#]*;)",
    re.MULTILINE,
)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One insertion at module level, where the file needs torch_npu itself.

    It was changed and imports torch, or moves what other modules make; or it is started and imports modules of the
    project that use the NPU.
    """
    if style is not Style.NPU or lightning_accelerator.brings_torch_npu(module, style):
        return
    body = module.tree.body
    if any(_imports(statement, "torch_npu") for statement in body):
        return
    starts = _starts_library(module)
    if not starts:
        if not _imports_torch(module) and not _moves_what_others_make(module):
            return
        if not any(map(_needs_npu, body)) and (_brings_npu(module, style) or not _is_needed(module)):
            return
    library = _library_import(module) if starts else None
    first = torch_import(module)
    if library is not None and (first is None or first.lineno > library.lineno):
        offset, before = module.text.position_to_offset(library.lineno, 0), True
        first = library
    elif first is not None and not _needs_npu(first) and _goes_on(module, first):
        end = module.text.span(first)[1]
        yield RULE.make_finding(module, first, _MESSAGE, [Edit(end, end, b"; import torch_npu")])
        return
    elif first is not None and not _needs_npu(first):
        offset, before = line_end(module, first), False
    elif first is not None:
        offset, before = module.text.position_to_offset(first.lineno, 0), True
    else:
        offset, before = _after_header(module), False
    yield _finding(module, first or (body[0] if body else None), offset, before)


_MESSAGE = "torch_npu is imported once, at module level: it adds the NPU to torch"


def _goes_on(module: Module, first: ast.stmt) -> bool:
    """Whether something that is no import follows on the line of the import of torch: `import torch; x.cuda()`."""
    return any(
        statement.lineno == first.end_lineno
        and statement.col_offset > first.col_offset
        and not isinstance(statement, ast.Import | ast.ImportFrom)
        for statement in module.tree.body
    )


def may_be_started(data: bytes, path: str, project: Definitions) -> bool:
    """Whether the file is more than a module of others, so that its imports may have to bring torch_npu (TP001).

    What `_is_entry` and `_is_run` say, or more: asked of the text, since hundreds of files lead to others that use
    CUDA and only few are started.
    """
    if data.startswith(b"#!") or _ASKS_FOR_ITS_NAME.search(data):
        return True
    return path not in project.targets and (_TESTS.search(path) or _DOES_SOMETHING.search(data)) is not None


def _starts_library(module: Module) -> bool:
    """Whether the file is started and comes to use the NPU through the project's own modules alone, or also."""
    return module.text.path in module.project.leading and (_is_entry(module) or _is_run(module))


def _is_run(module: Module) -> bool:
    """Whether the file is no module of others and does something when it is executed, so that it is a script."""
    if module.text.path in module.project.targets:
        return False
    if _TESTS.search(module.text.path):
        return True
    works = ast.For | ast.While | ast.With
    return any(
        isinstance(statement, works)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call))
        or (isinstance(statement, ast.Assign | ast.AnnAssign) and _computes(module, statement.value))
        for statement in module.tree.body
    )


def _moves_what_others_make(module: Module) -> bool:
    """Whether a file that does not import torch is started and moves what it has from others: `Net().cuda()`."""
    if not (_is_entry(module) or _is_run(module) or _asks_while_imported(module)):
        return False
    roots = {binding.target.partition(".")[0] for binding in module.names.iter_imports()}
    return not roots <= sys.stdlib_module_names and any(
        map(functools.partial(_moves, module), module.iter_nodes(ast.Call))
    )


def _moves(module: Module, call: ast.Call) -> bool:
    """Whether the call moves an object, or has a library make one on a device: `Encoder(device="cuda")`."""
    name = module.resolve_name(call.func)
    if name is None and isinstance(call.func, ast.Attribute):
        return call.func.attr == "cuda" or (call.func.attr == "to" and _spells_cuda(call))
    if (name or "builtins").partition(".")[0] in sys.stdlib_module_names | {"builtins"}:
        return False
    return any(word.arg in load_role("device").keywords and _spells_cuda(call) for word in call.keywords)


def _spells_cuda(call: ast.Call) -> bool:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.startswith("cuda")
        for value in values
        for part in ast.walk(value)
    )


def _computes(module: Module, value: ast.expr | None) -> bool:
    """Whether an assigned value is made by torch, by a library or by the project, not only by Python: no logger, no
    path."""
    for node in ast.walk(value) if value is not None else ():
        name = module.resolve_name(node.func) if isinstance(node, ast.Call) else None
        root = (name or "").partition(".")[0]
        if root == "torch" or (root in module.project.modules and root not in sys.stdlib_module_names):
            return True
        ours = root not in sys.stdlib_module_names and root not in ("", "builtins")
        if ours and not (name or "").lower().endswith(("get_logger", "getlogger")):
            return True  # TorchTrainer(...) of a library: a script without a function main
    return False


def _library_import(module: Module) -> ast.stmt | None:
    """The first statement at module level that imports a module of the project, in a condition too."""
    for statement in module.tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                tops = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                tops = {(node.module or "").partition(".")[0]}
                if node.level:
                    return statement
            else:
                continue
            # A folder of the project may be called as a module of Python: fairseq/logging is not what `logging` means.
            own = {top for top in tops if top not in sys.stdlib_module_names or module.project.has_package(top)}
            if not own.isdisjoint(module.project.modules) and "torch" not in tops:
                return statement
    return None


def _is_needed(module: Module) -> bool:
    """Whether nothing else imports torch_npu before: the file names it, or is started itself, as far as is known.

    A file that only defines things and that others import is loaded by one that was started: that one has torch_npu.
    """
    if _names_torch_npu(module) or _is_entry(module) or not module.project.whole:
        return True
    if module.text.path not in module.project.targets and _is_run(module):
        return True
    return not module.project.is_imported(module.text.path)


def _brings_npu(module: Module, style: Style) -> bool:
    """Whether an import at module level is one from torch_npu after conversion, and gives its name where that is used.

    `import torch_npu.npu.amp as amp` brings torch_npu and does not name it.
    """
    wanted = rb"(?:torch, )?torch_npu" if _names_torch_npu(module) else rb".*torch_npu.*"
    lines = {statement.lineno for statement in module.tree.body}
    return any(
        finding.location is not None
        and finding.location.line in lines
        and any(re.fullmatch(wanted, edit.replacement, re.DOTALL) for edit in finding.fix)
        for finding in torch_cuda_import.check_module(module, style)
    )


def torch_import(module: Module) -> ast.stmt | None:
    """The first statement at module level that imports torch."""
    return next((statement for statement in module.tree.body if _imports(statement, "torch")), None)


def _finding(module: Module, near: ast.stmt | None, offset: int, before: bool) -> Finding:
    newline = module.text.newline
    text = "".join(f"{line}{newline}" for line in ("import torch_npu", *hidden_cards.lines_after_import(module)))
    if not before and offset == len(module.text.data) and not module.text.data.endswith((b"\n", b"\r")):
        text = newline + text.removesuffix(newline)
    assert near is not None
    return RULE.make_finding(module, near, _MESSAGE, [Edit(offset, offset, text.encode(module.text.encoding))])


def _imports(statement: ast.stmt, package: str) -> bool:
    if isinstance(statement, ast.Import):
        return any(alias.name.partition(".")[0] == package for alias in statement.names)
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.level == 0
        and ((statement.module or "").partition(".")[0] == package)
    )


def _is_entry(module: Module) -> bool:
    """Whether the file is started: `if __name__ == "__main__"`, or a `#!` line where no relative import forbids it."""
    if module.text.data.startswith(b"#!") and not any(
        isinstance(statement, ast.ImportFrom) and statement.level for statement in module.tree.body
    ):
        return True
    return any(
        isinstance(statement, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(statement.test))
        for statement in module.tree.body
    )


def is_test(path: str) -> bool:
    """Whether pytest starts the file, by its name."""
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"


def _asks_while_imported(module: Module) -> bool:
    """Whether code outside of functions uses CUDA: a name of torch, a method, a device that is passed on."""
    nodes: list[ast.expr] = [node for node in module.iter_nodes(ast.Attribute) if _is_cuda(module, node)]
    for constant in module.iter_nodes(ast.Constant):
        if isinstance(constant.value, str) and constant.value.startswith("cuda"):
            nodes += [constant] if isinstance(module.get_parent(constant), ast.Call | ast.keyword) else []
    return any(_is_outside(module.names.scope_of(node)) for node in nodes)


def _is_cuda(module: Module, node: ast.Attribute) -> bool:
    name = module.resolve_name(node)
    return name.startswith("torch.cuda.") if name else node.attr in ("cuda", "is_cuda")


def _is_outside(scope: Scope | None) -> bool:
    while scope is not None and not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        scope = scope.parent
    return scope is None


def _names_torch_npu(module: Module) -> bool:
    """Whether the converted file names torch_npu in an expression."""
    for kind in (ast.Attribute, ast.Name):
        for node in module.iter_nodes(kind):
            found = find_api(module.resolve_name(node) or "")
            if found is not None and found[0].npu.startswith("torch_npu.") and is_applicable(module, found[0]):
                return True
    return False


def _imports_torch(module: Module) -> bool:
    return any(_imports(node, "torch") for kind in (ast.Import, ast.ImportFrom) for node in module.iter_nodes(kind))


def _needs_npu(statement: ast.stmt) -> bool:
    """Whether the statement, after conversion, imports a name that torch has only once torch_npu is imported."""
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.module == "torch"
        and any(alias.name == "cuda" for alias in statement.names)
    )


def line_end(module: Module, statement: ast.stmt) -> int:
    """The offset after the line on which the statement ends; statements that share its lines come along."""
    last = statement.end_lineno or statement.lineno
    for other in module.tree.body:
        if other.lineno <= last:
            last = max(last, other.end_lineno or other.lineno)
    while last < len(module.text.lines) and module.text.lines[last - 1].rstrip("\r\n").endswith("\\"):
        last += 1  # a statement that goes on for an empty line
    return module.text.position_to_offset(last, 0) + len(module.text.lines[last - 1].encode(module.text.encoding))


def _after_header(module: Module) -> int:
    """The offset after the docstring and the `from __future__` imports; torch is imported further inside only."""
    offset = 0
    for index, statement in enumerate(module.tree.body):
        docstring = index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not docstring and not future:
            return module.text.position_to_offset(_first_line(statement), 0)
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
    words=(),
    check=check_module,
    rewrites=(
        ("import torch\nx.cuda()\n", "import torch\nimport torch_npu\nx.npu()\n"),
        (
            "'''Doc.'''\nfrom __future__ import annotations\nimport torch\nx.cuda()\n",
            "'''Doc.'''\nfrom __future__ import annotations\nimport torch\nimport torch_npu\nx.npu()\n",
        ),
        ("from torch import cuda\n", "import torch_npu\nfrom torch import npu\n"),
        ("from torch.cuda import Event\n", "from torch_npu.npu import Event\n"),
        (
            "'Doc.'\ndef f():\n    import torch\n    return torch.cuda.Event()\n",
            "'Doc.'\nimport torch_npu\ndef f():\n    import torch\n    return torch.npu.Event()\n",
        ),
        (
            "try:\n    import torchvision\nexcept ImportError:\n    pass\nimport torch\nx.cuda()\n",
            "try:\n    import torchvision\nexcept ImportError:\n    pass\nimport torch\nimport torch_npu\nx.npu()\n",
        ),
        ("import os; import torch; x.cuda()\ny = 1", "import os; import torch; import torch_npu; x.npu()\ny = 1"),
        (
            "import torch\nfrom torch.cuda.amp import autocast\nfrom torch.profiler import ProfilerActivity as A\n"
            "import torch.profiler as p\np.profile(activities=[A.CUDA])\n",
            "import torch\nimport torch_npu\nfrom torch_npu.npu.amp import autocast\n"
            "from torch_npu.profiler import ProfilerActivity as A\n"
            "import torch.profiler as p\ntorch_npu.profiler.profile(activities=[A.NPU])\n",
        ),
        (
            "import os\nimport timm\nnet = timm.create_model('x').cuda()\n",
            "import torch_npu\nimport os\nimport timm\nnet = timm.create_model('x').npu()\n",
        ),
        (
            "from encoders import Encoder\nencode = Encoder('x', device='cuda')\n",
            "import torch_npu\nfrom encoders import Encoder\nencode = Encoder('x', device='npu')\n",
        ),
        ("import torch\nimport torch_npu\nx.cuda()\n", "import torch\nimport torch_npu\nx.npu()\n"),
    ),
    reports=(),
    ignores=(
        "from . import torch, cuda\n",
        "import torch\nx = torch.ones(2)\n",
        "import torchvision\n",
        "import torch\nx = 'cuda'\n",
        "import mytorchutils\nx = 1\n",
        "from . import torch\n",
        "import os\n",
        "from model import Net\nnet = Net()\n",
        "import torch\nimport torch_npu\nx.npu()\n",
        "from torch import nn\n",
        "from encoders import Encoder\nencode = Encoder('x', device='cpu')\n",
    ),
    after=re.compile(rb"npu|NPU|hccl|HCCL"),
    alone=lambda module: _starts_library(module) or bool(hidden_cards.lines_after_import(module)),
)
