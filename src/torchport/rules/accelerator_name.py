"""TP002: the variable ACCELERATOR of `--style agnostic`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.rules.torch_npu_import import line_end, torch_import
from torchport.source.module import Module

ACCELERATOR = "ACCELERATOR"
# Where the file has no torch at module level, it is imported under a name that means nothing to the rest of the file.
OWN_TORCH = "_torch"
_VALUE = '(torch.accelerator.current_accelerator() or torch.device("cuda")).type  # "cuda", "npu", ...'


def is_accelerator(module: Module, node: ast.AST) -> bool:
    """Whether the node is a part of the line that this rule writes."""
    return any(
        isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name) and above.targets[0].id == ACCELERATOR
        for above in module.names.iter_ancestors(node)
    )


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """One insertion after the import of torch, where the file was changed and does not have the variable."""
    if style is not Style.AGNOSTIC or ACCELERATOR in module.names.scopes[module.tree].bindings:
        return
    body = module.tree.body
    first = torch_import(module)
    declared = any(isinstance(statement, ast.Global) and "torch" in statement.names for statement in body)
    bound = "torch" in module.names.scopes[module.tree].bindings and not declared  # no use before `global torch`
    last = first
    for statement in body:  # after all imports at the head of the file, so that none of them has code before it
        is_import = isinstance(statement, ast.Import | ast.ImportFrom)
        if is_import and (last is None or not _code_between(body, last, statement)):
            last = statement
    if last is None:
        if body:
            yield RULE.make_finding(
                module,
                body[0],
                "nothing is imported at module level: ACCELERATOR cannot be defined in this file",
                hint=f"Define it: {ACCELERATOR} = {_VALUE.partition(' #')[0]}",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )
        return
    newline = module.text.newline
    lines = ["", f"{ACCELERATOR} = {_VALUE}"]
    if not bound:
        own = _VALUE.replace("torch.", f"{OWN_TORCH}.")
        lines = [f"import torch as {OWN_TORCH}", "", f"{ACCELERATOR} = {own}"]
    # Before the end of the import's line: an edit at the start of the line below has a place of its own then.
    text = newline + newline.join(lines)
    offset = line_end(module, last)
    above = module.text.data[:offset]
    offset -= 2 if above.endswith(b"\r\n") else above.endswith((b"\n", b"\r"))
    message = "the type of the accelerator is asked for once"
    yield RULE.make_finding(module, last, message, [Edit(offset, offset, text.encode(module.text.encoding))])


def _code_between(body: list[ast.stmt], one: ast.stmt, other: ast.stmt) -> bool:
    """Whether anything but imports stands between two statements, the first of which comes first."""
    between = body[body.index(one) + 1 : body.index(other)]
    return any(not isinstance(statement, ast.Import | ast.ImportFrom | ast.Try | ast.If) for statement in between)


RULE = Rule(
    code="TP002",
    title="the accelerator is asked for once (--style agnostic)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="One variable keeps the code free of device names. It is cuda where there is no accelerator, so that code for "
    "machines without one stays as it was.",
    reference="https://docs.pytorch.org/docs/stable/accelerator.html",
    words=(),
    check=check_module,
    rewrites=(("import torch\nx.cuda()\n", f"import torch\n\nACCELERATOR = {_VALUE}\nx.to(ACCELERATOR)\n"),),
    reports=(),
    ignores=("import torch\nx = torch.ones(2)\n", "import torch\ntorch.cuda.get_arch_list()\n"),
    after=re.compile(ACCELERATOR.encode()),
    style=Style.AGNOSTIC,
)
