"""TP160: environment variables of CUDA and NCCL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.environment import VISIBLE, Variable, hides_all, load_variables, order_of, out_of_order
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

_LOOKS_LIKE_ONE = re.compile(
    # not names of error codes and of keys for services
    r"(?!\w+_(?:STATUS|ERROR|API)_)(?:TORCH_)?(?:CUDA|NCCL|NVIDIA|CUDNN|CUBLAS)_[A-Z0-9_]+|PYTORCH_[A-Z_]*CUDA[A-Z_]*"
)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every string that is exactly the name of such a variable, wherever it stands."""
    for constant in module.iter_nodes(ast.Constant):
        text = constant.value
        if not isinstance(text, str) or isinstance(module.get_parent(constant), ast.Expr):
            continue
        variable = load_variables().get(text)
        if variable is not None:
            edit = module.string_edit(constant, variable.name, variable.npu) if variable.npu else None
            yield _finding(module, constant, variable, style, edit, _value(module, constant))
        elif _LOOKS_LIKE_ONE.fullmatch(text):
            yield RULE.make_finding(
                module,
                constant,
                f"{text} looks like a variable of CUDA, and nothing is known about it on the NPU",
                hint="Drop it, or find what does the same in the documentation of CANN.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
    for keyword in module.iter_nodes(ast.keyword):  # dict(os.environ, CUDA_VISIBLE_DEVICES="0")
        if keyword.arg is None or keyword.arg not in load_variables():
            continue
        variable = load_variables()[keyword.arg]
        if _makes_table(module, keyword) and variable.npu:
            start, _ = module.text.span(keyword)
            edit = Edit(start, start + len(keyword.arg), variable.npu.encode())
            value = keyword.value if isinstance(keyword.value, ast.Constant) else None
            yield _finding(module, keyword.value, variable, style, edit, value)
        else:
            yield RULE.make_finding(
                module,
                keyword.value,
                f"{keyword.arg} is set here for another process",
                hint=f"On an NPU it is {load_variables()[keyword.arg].npu or 'not needed'}.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )


def _makes_table(module: Module, keyword: ast.keyword) -> bool:
    """Whether the keyword is a key: `dict(os.environ, NAME="0")`, `env.update(NAME="0")`."""
    call = module.get_parent(keyword)
    if not isinstance(call, ast.Call):
        return False
    updates = isinstance(call.func, ast.Attribute) and call.func.attr == "update"
    return module.resolve_name(call.func) == "builtins.dict" or updates


def _finding(
    module: Module, node: ast.expr, variable: Variable, style: Style, edit: Edit | None, value: ast.Constant | None
) -> Finding:
    """What is said of a variable that is named at `node`: `edit` writes the other name, `value` is what it gets."""
    if not variable.npu or variable.npu == variable.name:
        return RULE.make_finding(
            module,
            node,
            f"{variable.name} has no effect on an NPU",
            hint=variable.note[:1].upper() + variable.note[1:] + ".",
            safety=Safety.REPORT,
            severity=Severity.INFO,
        )
    if style is Style.AGNOSTIC:
        return RULE.make_finding(
            module,
            node,
            f"{variable.name} is {variable.npu} on the NPU",
            hint=f"Set {variable.npu} beside it.",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )
    if variable.values:
        return _with_value(module, node, variable, edit, value)
    text = str(value.value) if value is not None and isinstance(value.value, str) else None
    order = order_of(text) if variable.npu == VISIBLE and text is not None else None
    hidden = variable.npu == VISIBLE and text is not None and hides_all(text)
    note = "" if order or hidden else variable.note
    edits = [edit]
    if hidden and text and value is not None:  # torch_npu leaves the NPU alone in data loaders for "", not for "-1"
        edits.append(module.string_edit(value, text, ""))
    return RULE.make_finding(
        module,
        node,
        f"{variable.name} is {variable.npu} on the NPU" + (f"; {note}" if note else ""),
        edits,
        hint=out_of_order(text or "") if order is False else "Check the value." if note else "",
        safety=Safety.REVIEW if note else Safety.SAFE,
        severity=Severity.WARNING if note else Severity.INFO,
    )


def _with_value(
    module: Module, node: ast.expr, variable: Variable, edit: Edit | None, value: ast.Constant | None
) -> Finding:
    """A variable whose values are written in another way: it changes together with its value, or stays."""
    new = variable.convert_value(None if value is None else str(value.value))
    message = f"{variable.name} is {variable.npu} on the NPU; {variable.note}"
    if value is None or new is None:
        return RULE.make_finding(
            module,
            node,
            message,
            hint=f"Set {variable.npu} instead, or drop it.",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )
    edits = [edit, module.string_edit(value, str(value.value), new)]
    return RULE.make_finding(module, node, message, edits, hint="Check the value.", safety=Safety.REVIEW)


def _value(module: Module, node: ast.Constant) -> ast.Constant | None:
    """The text that a variable is set to: `environ[name] = "0"`, `setdefault(name, "0")`, `{name: "0"}`."""
    value: ast.expr | None = None
    match module.get_parent(node):
        case ast.Subscript() as target:
            above = module.get_parent(target)
            value = above.value if isinstance(above, ast.Assign) else None
        case ast.Call(args=[first, second, *_]) if first is node:
            value = second
        case ast.Dict(keys=keys, values=values):
            value = values[keys.index(node)] if node in keys else None
        case _:
            pass
    return value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


RULE = Rule(
    code="TP160",
    title="environment variables of CUDA and NCCL become those of Ascend and HCCL",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="CUDA_VISIBLE_DEVICES and its kind have no effect on an NPU: the script would use the wrong devices silently.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    words=(*CUDA, b"cublas"),
    check=check_module,
    rewrites=(
        (
            "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\n",
            "import os\nos.environ['ASCEND_RT_VISIBLE_DEVICES'] = '0,1'\n",
        ),
        (
            "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n",
            "import os\nos.environ['ASCEND_RT_VISIBLE_DEVICES'] = ''\n",
        ),
        (
            "import os\nn = os.getenv('CUDA_LAUNCH_BLOCKING', '0')\n",
            "import os\nn = os.getenv('ASCEND_LAUNCH_BLOCKING', '0')\n",
        ),
        (
            "import os\nos.environ.setdefault('PYTORCH_CUDA_ALLOC_CONF', 'max_split_size_mb:128')\n",
            "import os\nos.environ.setdefault('PYTORCH_NPU_ALLOC_CONF', 'max_split_size_mb:128')\n",
        ),
        (
            "import os\nos.environ['NCCL_ALGO'] = 'Ring'\nos.environ['NCCL_BUFFSIZE'] = '4194304'\n",
            "import os\nos.environ['HCCL_ALGO'] = 'level0:NA;level1:ring'\nos.environ['HCCL_BUFFSIZE'] = '4'\n",
        ),
        (
            "import os\nenv = dict(os.environ, CUDA_VISIBLE_DEVICES='0,1')\n"
            "os.environ.update(CUDA_LAUNCH_BLOCKING='1')\n",
            "import os\nenv = dict(os.environ, ASCEND_RT_VISIBLE_DEVICES='0,1')\n"
            "os.environ.update(ASCEND_LAUNCH_BLOCKING='1')\n",
        ),
        ("env = {'NCCL_SOCKET_IFNAME': 'eth0'}\n", "env = {'HCCL_SOCKET_IFNAME': 'eth0'}\n"),
    ),
    reports=(
        "import os\nos.environ['NCCL_DEBUG'] = 'INFO'\n",
        "import os\nos.environ['NCCL_ALGO'] = 'Tree'\nos.environ['NCCL_BUFFSIZE'] = '1000'\n",
        "import os\nos.environ['NCCL_BUFFSIZE'] = size\nprint(os.getenv('NCCL_ALGO'))\n",
        "run_job(CUDA_VISIBLE_DEVICES='0')\n",
    ),
    ignores=(
        "print('set CUDA_VISIBLE_DEVICES first')\n",
        "CUDA_VISIBLE_DEVICES = 3\n",
        "'CUDA_VISIBLE_DEVICES'\n",
        "import os\nos.environ['ASCEND_RT_VISIBLE_DEVICES'] = '0'\n",
    ),
)
