"""TP214: one process prints and saves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule
from torchport.rules.distribute import on_script
from torchport.rules.distribute.script import Script
from torchport.rules.distribute.start import IS_MAIN

_OUTPUT = ("builtins.print", "torch.save")
_BARS = ("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.std.tqdm")
_WRITERS = ("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter", "wandb.init", "mlflow.start_run")


def check_script(script: Script) -> Iterator[Finding]:
    """Guards around runs of statements that print or save; what else every process would write is reported."""
    if script.is_distributed:
        return
    seen: set[ast.stmt] = set()
    for statement in script.iter_nodes(ast.Expr):
        if statement not in seen and _is_output(script, statement):
            run = _run(script, statement)
            seen.update(run)
            yield RULE.make_finding(
                script,
                statement,
                "only the first process prints and saves",
                _guard(script, run),
                hint="What is printed is what this process saw: its part of the training data.",
            )
    for call in script.iter_nodes(ast.Call):
        name = script.resolve_name(call.func)
        if name in _BARS and not any(keyword.arg in ("disable", None) for keyword in call.keywords):
            edit = script.append_argument(call, f"disable=not {IS_MAIN}") if call.args else None
            yield RULE.make_finding(script, call, "only the first process shows a progress bar", [edit])
        elif name in _WRITERS:
            yield RULE.make_finding(
                script,
                call,
                f"every process would write with {name}",
                safety=Safety.REPORT,
                hint=f"Make and use it where {IS_MAIN} is true only.",
                severity=Severity.WARNING,
            )


def _is_output(script: Script, statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(value, ast.Call) or script.resolve_name(value.func) not in _OUTPUT:
        return False
    return not any(
        isinstance(above, ast.If) and ("rank" in (test := ast.unparse(above.test).lower()) or "is_main" in test)
        for above in script.names.iter_ancestors(statement)
    )


def _run(script: Script, first: ast.stmt) -> list[ast.stmt]:
    """The statements from `first` on that only print and save."""
    block = script.find_block(first)
    run = []
    for statement in block[block.index(first) :] if first in block else [first]:
        if not _is_output(script, statement):
            break
        run.append(statement)
    return run


def _guard(script: Script, run: list[ast.stmt]) -> list[Edit | None]:
    """`if IS_MAIN:` before the first; all are indented, and their further lines unless a string goes over them."""
    indent = script.find_indent(run[0])
    if indent is None or any(script.find_indent(statement) is None for statement in run):
        return [None]
    unit = "\t" if indent.startswith("\t") else "    "
    edits: list[Edit | None] = []
    for statement in run:
        start, _ = script.text.span(statement)
        head = f"if {IS_MAIN}:{script.text.newline}{indent}" if statement is run[0] else ""
        edits.append(Edit(start, start, (head + unit).encode(script.text.encoding)))
        if not any(_spans_lines(part) for part in ast.walk(statement)):
            edits += [
                Edit(offset, offset, unit.encode())
                for line in range(statement.lineno + 1, (statement.end_lineno or 0) + 1)
                for offset in [script.text.position_to_offset(line, 0)]
            ]
    return edits


def _spans_lines(node: ast.AST) -> bool:
    """Whether a string goes over several lines, the white space of which belongs to it."""
    text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
    return text and node.lineno != node.end_lineno  # type: ignore[attr-defined]


RULE = Rule(
    code="TP214",
    title="one process prints and saves (--distributed)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="All processes run the same code: without a guard each would print every line and write the same checkpoint.",
    reference="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
    check=on_script(check_script),
    rewrites=(
        ("print('a')\nprint('b')\nx = 1\n", f"if {IS_MAIN}:\n    print('a')\n    print('b')\nx = 1\n"),
        (
            "import torch\nif best:\n    torch.save(x,\n               p)\n",
            f"import torch\nif best:\n    if {IS_MAIN}:\n        torch.save(x,\n                   p)\n",
        ),
        ("print('''a\n  b''')\n", f"if {IS_MAIN}:\n    print('''a\n  b''')\n"),
        (
            "from tqdm import tqdm\nfor x in tqdm(y):\n    pass\n",
            f"from tqdm import tqdm\nfor x in tqdm(y, disable=not {IS_MAIN}):\n    pass\n",
        ),
    ),
    reports=(),
    ignores=(
        "if rank == 0:\n    print('a')\n",
        "def print(x):\n    pass\nprint(1)\n",
        "x = [print(y) for y in z]\n",
        "np.save(x)\n",
    ),
)
