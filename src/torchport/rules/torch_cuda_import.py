"""TP102: imports from `torch.cuda`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.api import Api, Status, find_api
from torchport.rules import CUDA, Rule, Style
from torchport.rules.torch_cuda_api import convert_name, is_applicable, target_of
from torchport.source.module import Module
from torchport.source.names import Binds

_FROM = re.compile(r"from(\s+)([\w.]+)(\s+)import\b")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One finding per import statement that names something of CUDA."""
    for plain in module.iter_nodes(ast.Import):
        yield from _check_import(module, plain, style)
    for statement in module.iter_nodes(ast.ImportFrom):
        if statement.level == 0 and (statement.module or "").partition(".")[0] == "torch":
            yield from _check_from(module, statement, style)


def _check_import(module: Module, node: ast.Import, style: Style) -> Iterator[Finding]:
    edits: list[Edit | None] = []
    for alias in node.names:
        if alias.name != "torch.cuda" and not alias.name.startswith("torch.cuda."):
            continue
        found = find_api(alias.name)
        row = found[0] if found is not None and not found[1] else None
        if row is None or row.status is Status.MISSING:
            yield _report(module, node, alias.name, row)
        elif style is Style.AGNOSTIC:
            yield _stays(module, node, alias.name)
        else:
            start, _ = module.text.span(alias)
            end = start + len(alias.name)
            # Without `as` the statement binds torch, through which torch.npu is found once torch_npu is imported.
            new = to_importable_path(row.npu) if alias.asname else _with_torch(module, node)
            edits.append(Edit(start, end, new.encode()) if module.text.decode_range(start, end) == alias.name else None)
    if edits:
        yield RULE.make_finding(module, node, "the module is torch.npu on the NPU", edits)


def _with_torch(module: Module, node: ast.Import) -> str:
    """What to import so that the scope has the name torch, and torch an NPU."""
    bindings = module.names.scope_of(node).bindings.get("torch", [])
    plain = any(
        isinstance(binding.node, ast.Import) and any(alias.name == "torch" for alias in binding.node.names)
        for binding in bindings
    )
    return "torch_npu" if plain else "torch, torch_npu"


def to_importable_path(target: str) -> str:
    """The module path under which Python can import a name of the NPU interface, and that brings torch_npu with it."""
    return re.sub(r"^torch\.npu\b", "torch_npu.npu", target)


def _check_from(module: Module, node: ast.ImportFrom, style: Style) -> Iterator[Finding]:
    source = node.module or ""
    if [alias.name for alias in node.names] == ["*"]:
        yield from _check_star(module, node, source, style)
        return
    targets: dict[ast.alias, tuple[str, str]] = {}
    spelled: dict[ast.alias, str] = {}
    for alias in node.names:
        name = f"{source}.{alias.name}"
        found = find_api(name)
        row = found[0] if found is not None and not found[1] else None
        if row is not None and not is_applicable(module, row):
            continue
        if row is not None and row.status not in (Status.MISSING, Status.KEEP):
            target = target_of(row, style)
            if "(" in target:
                spelled[alias] = target
            elif target != name:
                path, _, word = target.rpartition(".")
                targets[alias] = (to_importable_path(path), word)
        elif source.startswith("torch.cuda") or row is not None:
            yield _report(module, node, name, row)
    uses = _spelled_uses(module, node, spelled)
    if targets:
        edits = _from_edits(module, node, targets, without=set(spelled) if uses is not None else set())
        seen = bool(spelled) and uses is not None and module.project.is_imported(module.text.path)
        safety = Safety.REVIEW if seen else None  # another file may import from this one what is written out now
        yield RULE.make_finding(module, node, _summary(source, targets), [*edits, *(uses or [])], safety=safety)
    elif uses is not None and len(spelled) == len(node.names):
        names = ", ".join(alias.name for alias in spelled)
        elsewhere = module.project.is_imported(module.text.path)
        yield RULE.make_finding(
            module,
            node,
            f"{names} of {node.module} are asked of the accelerator's module where they are used",
            [*uses, _without(module, node)],
            safety=Safety.REVIEW if elsewhere else Safety.SAFE,
            hint=f"Check that no other file imports {names} from this one." if elsewhere else "",
        )
    if uses is None or not (targets or len(spelled) == len(node.names)):
        for alias in spelled:
            yield _stays(module, node, f"{node.module}.{alias.name}")


def _spelled_uses(module: Module, node: ast.ImportFrom, spelled: dict[ast.alias, str]) -> list[Edit | None] | None:
    """Edits that write out names that no import brings on any device, where they are used; None where that fails."""
    edits: list[Edit | None] = []
    for alias, target in spelled.items():
        uses = _rename_uses(module, node, alias.asname or alias.name, target)
        if uses is None or None in uses:
            return None
        edits += uses
    return edits if "torch" in module.names.scopes[module.tree].bindings or not spelled else None


def _without(module: Module, node: ast.ImportFrom) -> Edit:
    """The file without the statement: without its lines, where these and the block have others."""
    start, end = module.text.span(node)
    place = module.text.to_location(start, end)
    line, rest = (module.text.lines[place.line - 1], module.text.lines[place.end_line - 1][place.end_column - 1 :])
    if line[: place.column - 1].strip() or rest.strip() or len(getattr(module.get_parent(node), "body", ())) < 2:
        return Edit(start, end, b"pass")
    _, first = module.text.line_at(start)
    return Edit(first, end + len(rest.encode(module.text.encoding)), b"")


def _check_star(module: Module, node: ast.ImportFrom, source: str, style: Style) -> Iterator[Finding]:
    target = convert_name(source, style)
    if source != "torch.cuda" and not source.startswith("torch.cuda."):
        return
    if "(" in target:
        yield _stays(module, node, source)
    elif target == source:
        found = find_api(source)
        yield _report(module, node, source, found[0] if found is not None and not found[1] else None)
    else:
        yield RULE.make_finding(
            module,
            node,
            f"what `import *` brings is not the same in {target}",
            [module_edit(module, node, to_importable_path(target))],
            hint="Name what the file uses.",
            safety=Safety.REVIEW,
            severity=Severity.WARNING,
        )


def _summary(source: str, targets: dict[ast.alias, tuple[str, str]]) -> str:
    names = ", ".join(f"{source}.{alias.name} is {path}.{word}" for alias, (path, word) in targets.items())
    return f"{names} on the NPU"


def _from_edits(
    module: Module, node: ast.ImportFrom, targets: dict[ast.alias, tuple[str, str]], without: set[ast.alias]
) -> list[Edit | None]:
    """Edits that import `targets` from where they are, and no longer the names in `without`."""
    paths = {path for path, _ in targets.values()}
    edits: list[Edit | None] = []
    uses: dict[ast.alias, list[Edit | None] | None] = {}
    for alias, (_, word) in targets.items():
        renamed = word != alias.name and alias.asname is None
        uses[alias] = _rename_uses(module, node, alias.name, word) if renamed else None
        edits += uses[alias] or []
    if not without and len(paths) == 1 and (len(targets) == len(node.names) or paths == {node.module}):
        if paths != {node.module}:
            edits.append(module_edit(module, node, paths.pop()))
        for alias, (_, word) in targets.items():
            if word != alias.name:
                start, _ = module.text.span(alias)
                new = word if alias.asname or uses[alias] is not None else f"{word} as {alias.name}"
                edits.append(Edit(start, start + len(alias.name), new.encode()))
        return edits
    return [*edits, _split(module, node, targets, uses, without)]


def module_edit(module: Module, node: ast.ImportFrom, new: str) -> Edit | None:
    """Replace the module of `from module import ...`; None where it is written in another way (over lines)."""
    start, end = module.text.span(node)
    found = _FROM.match(module.text.decode_range(start, end))
    if found is None or found[2] != node.module:
        return None
    begin = start + found.start(2)
    return Edit(begin, begin + len(found[2]), new.encode())


def _rename_uses(module: Module, node: ast.ImportFrom, old: str, new: str) -> list[Edit | None] | None:
    """Edits that rename every use of an imported name; None where a use may be out of sight or `new` is taken."""
    owner = module.names.scope_of(node).find_owner_scope(old)
    if owner is None or len(owner.bindings[old]) != 1 or owner.bindings[old][0].how is not Binds.IMPORT:
        return None
    names = list(module.iter_nodes(ast.Name))
    exported = any(constant.value == old for constant in module.iter_nodes(ast.Constant))
    if exported or any(name.id == new for name in names) or new in owner.bindings:
        return None
    return [module.name_edit(name, new) for name in names if name.id == old and _owner(module, name) is owner]


def _owner(module: Module, name: ast.Name) -> object:
    return module.names.scope_of(name).find_owner_scope(name.id)


def _split(
    module: Module,
    node: ast.ImportFrom,
    targets: dict[ast.alias, tuple[str, str]],
    uses: dict[ast.alias, list[Edit | None] | None],
    without: set[ast.alias],
) -> Edit | None:
    """The statement as several, one per module, where its names no longer come from one."""
    start, end = module.text.span(node)
    _, line_start = module.text.line_at(start)
    indent = module.text.decode_range(line_start, start)
    place = module.text.to_location(start, end)
    rest = module.text.lines[place.end_line - 1][place.end_column - 1 :]
    if "#" in module.text.decode_range(start, end) or indent.strip() or rest.strip():
        return None
    groups: dict[str, list[str]] = {}
    for alias in node.names:
        if alias in without:
            continue
        path, word = targets.get(alias, (node.module or "", alias.name))
        known_as = alias.asname or (alias.name if uses.get(alias) is None and word != alias.name else None)
        groups.setdefault(path, []).append(f"{word} as {known_as}" if known_as else word)
    statements = [f"from {path} import {', '.join(names)}" for path, names in groups.items()]
    return Edit(start, end, f"{module.text.newline}{indent}".join(statements).encode())


def _stays(module: Module, node: ast.stmt, name: str) -> Finding:
    hint = f"Import torch, and write {convert_name(name, Style.AGNOSTIC)} where it is used."
    message = f"the import of {name} ties the file to CUDA"
    return RULE.make_finding(module, node, message, hint=hint, safety=Safety.REPORT, severity=Severity.WARNING)


def _report(module: Module, node: ast.stmt, name: str, row: Api | None) -> Finding:
    if row is None:
        message, hint = (
            f"{name} cannot be imported from the NPU interface",
            "Find its counterpart in torch.npu by hand.",
        )
    elif row.status is Status.KEEP:
        return RULE.make_finding(
            module, node, f"{name} is kept: {row.note}", safety=Safety.REPORT, severity=Severity.INFO
        )
    else:
        message, hint = f"{name} does not exist on the NPU", row.note[:1].upper() + row.note[1:] + "."
    return RULE.make_finding(module, node, message, hint=hint, safety=Safety.REPORT, severity=Severity.ERROR)


RULE = Rule(
    code="TP102",
    title="imports from torch.cuda become imports from torch.npu",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="torch.npu is torch_npu.npu, once that is imported: an import from torch_npu.npu brings it along.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        ("from torch import cuda as tc\ntc.synchronize()\n", "from torch import npu as tc\ntc.synchronize()\n"),
        ("from torch import cuda\ncuda.synchronize()\n", "from torch import npu\nnpu.synchronize()\n"),
        ("from torch import cuda, nn\n", "from torch import npu, nn\n"),
        ("import torch.cuda as C\nC.synchronize()\n", "import torch_npu.npu as C\nC.synchronize()\n"),
        ("import torch\nimport torch.cuda, os\n", "import torch\nimport torch_npu, os\n"),
        ("import torch.cuda\ntorch.cuda.init()\n", "import torch, torch_npu\ntorch.npu.init()\n"),
        ("import torch.cuda.amp as amp\n", "import torch_npu.npu.amp as amp\n"),
        (
            "from torch.cuda import is_available, Event\nis_available()\n",
            "from torch_npu.npu import is_available, Event\nis_available()\n",
        ),
        ("from torch.cuda.amp import autocast, GradScaler\n", "from torch_npu.npu.amp import autocast, GradScaler\n"),
        (
            "from torch.cuda import *\nfrom torch.cuda.amp import *\n",
            "from torch_npu.npu import *\nfrom torch_npu.npu.amp import *\n",
        ),
        ("from torch.cuda import CUDAGraph as G\n", "from torch_npu.npu import NPUGraph as G\n"),
        (
            "from torch.cuda import nvtx\nnvtx.range_push('a')\n",
            "from torch_npu.npu import mstx\nmstx.range_push('a')\n",
        ),
    ),
    reports=(
        "import torch.cuda.nccl as nccl\n",
        "from torch.cuda import get_arch_list\n",
        "from torch.cuda import comm\n",
        "from torch.cuda.comm import *\n",
    ),
    ignores=(
        "import torch\n",
        "import torch.nn, torch.optim  # cuda\n",
        "import torch.distributed as dist  # cuda\n",
        "from torch import nn, optim\n",
        "from numba import cuda\n",
        "from .torch import cuda\n",
        "import numba.cuda as cuda\n",
        "import torch_npu\nfrom torch import npu\n",
    ),
)
