"""TP219: scripts that hide their cards to train on the CPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.environment import VISIBLE, hides_all, load_variables
from torchport.rules import Rule, Style
from torchport.source.module import Module

_LINES = (
    "if not torch.npu.is_available():  # else torch_npu opens it for autocast and in each optimizer's step",
    "    import torch.optim.optimizer as optimizer_module",
    "    torch.npu.is_bf16_supported = lambda *_, **__: False",
    '    optimizer_module._get_foreach_kernels_supported_devices = lambda: ["cuda", "xpu"]',
)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every statement that hides all cards. If torch is imported already, lines follow it that keep
    torch_npu from opening them; if it is not, TP001 adds them to its import."""
    if style is not Style.NPU:
        return
    torch = _torch_line(module)
    for statement, value in _hiding(module):
        edits = [] if torch is not None and torch > statement.lineno else [_insertion(module, statement, torch)]
        if value.value and isinstance(module.get_parent(value), ast.IfExp):  # TP160 sees values that stand alone
            edits.append(module.string_edit(value, str(value.value), ""))
        if not edits:
            continue
        yield RULE.make_finding(
            module,
            statement,
            "torch_npu opens an NPU in autocast and in optimizers even if all are hidden",
            edits,
            hint="" if torch is not None else "Write the lines of `torchport explain TP219` behind `import torch_npu`.",
        )


def lines_after_import(module: Module) -> tuple[str, ...]:
    """The lines that follow `import torch_npu` if the file hides its cards before it imports torch."""
    torch = _torch_line(module) if b"VISIBLE_DEVICES" in module.text.data else None
    if torch is None or all(one.lineno > torch for one, _ in _hiding(module)):
        return ()
    return _LINES


def _hiding(module: Module) -> Iterator[tuple[ast.stmt, ast.Constant]]:
    """The statements `os.environ["CUDA_VISIBLE_DEVICES"] = "-1"`, and the same by setdefault, putenv or with `"-1" if
    cpu else cards`, with the value that hides them."""
    for constant in module.iter_nodes(ast.Constant):
        variable = load_variables().get(constant.value) if isinstance(constant.value, str) else None
        if variable is None or variable.npu != VISIBLE:
            continue
        match module.get_parent(constant):
            case ast.Subscript() as target:
                statement = module.get_parent(target)
                value = statement.value if isinstance(statement, ast.Assign) else None
            case ast.Call(func=ast.Attribute(attr="setdefault" | "putenv"), args=[first, second]) as call if (
                first is constant
            ):
                statement, value = module.get_parent(call), second
            case _:
                continue
        if not isinstance(statement, ast.Assign | ast.Expr):
            continue
        for each in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and hides_all(each.value):
                yield statement, each


def _torch_line(module: Module) -> int | None:
    """The line of the first `import torch` at module level."""
    for statement in module.tree.body:
        if isinstance(statement, ast.Import) and any(
            alias.name.partition(".")[0] == "torch" and alias.asname is None for alias in statement.names
        ):
            return statement.lineno
    return None


def _insertion(module: Module, statement: ast.stmt, torch: int | None) -> Edit | None:
    """The lines behind the statement, indented as it is; None if it shares its line with others, or if the module does
    not import torch."""
    if torch is None:
        return None
    text = module.text
    last = statement.end_lineno or statement.lineno
    line = text.lines[statement.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    end = text.span(statement)[1]
    offset = text.position_to_offset(last, 0) + len(text.lines[last - 1].encode(text.encoding))
    rest = text.data[end:offset].strip()
    if len(indent.encode()) != statement.col_offset or (rest and not rest.startswith(b"#")):
        return None
    before = "" if text.lines[last - 1].endswith(("\n", "\r")) else text.newline
    lines = "".join(f"{indent}{one}{text.newline}" for one in _LINES)
    return Edit(offset, offset, (before + lines).encode(text.encoding))


_WRITTEN = "\n".join(_LINES) + "\n"
_INDENTED = "".join(f"    {line}\n" for line in _LINES)

RULE = Rule(
    code="TP219",
    title="all cards hidden",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="A script that hides its cards (`--device cpu` of many) trains on the CPU. torch_npu 2.13.0 opens the NPU for "
    "autocast, even where it is off, for activation checkpointing and in each step of an optimizer, whatever its "
    "parameters are on, and ends with `No NPUs are available`. The lines that are written answer for it if no NPU is "
    "visible. `torchport run` needs none of them.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    words=(b"cuda_visible_devices",),
    check=check_module,
    rewrites=(
        (
            "import os, torch\ndef on_cpu():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n    return 'cpu'\n",
            "import os, torch\ndef on_cpu():\n    os.environ['ASCEND_RT_VISIBLE_DEVICES'] = ''\n"
            + _INDENTED
            + "    return 'cpu'\n",
        ),
        (
            "import os\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '')\nimport torch\nx = torch.ones(2)\n",
            "import os\nos.environ.setdefault('ASCEND_RT_VISIBLE_DEVICES', '')\nimport torch\n"
            + _WRITTEN
            + "x = torch.ones(2)\n",
        ),
        (
            "import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '-1' if cpu else cards\n",
            "import os, torch\nos.environ['ASCEND_RT_VISIBLE_DEVICES'] = '' if cpu else cards\n" + _WRITTEN,
        ),
    ),
    ignores=(
        "import os, torch\nos.environ['ASCEND_RT_VISIBLE_DEVICES'] = ''\n",
        "import torch\nprint('CUDA_VISIBLE_DEVICES=-1 trains on the CPU')\n",
        "import torch\nmonkeypatch.setenv('ASCEND_RT_VISIBLE_DEVICES', '')\n",
        "import os, torch\nif os.environ['ASCEND_RT_VISIBLE_DEVICES'] == '': pass\n",
    ),
)
