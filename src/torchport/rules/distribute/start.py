"""TP210: the process group, the device of a process, and what tells the processes apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import Rule
from torchport.rules.distribute import on_script
from torchport.rules.distribute.script import Script
from torchport.rules.torch_npu_import import torch_import

LOCAL_RANK, IS_MAIN = "LOCAL_RANK", "IS_MAIN"
_CONSTANTS = (
    f'{LOCAL_RANK} = int(os.environ.get("LOCAL_RANK", 0))  # torchrun starts one process per device',
    f'{IS_MAIN} = int(os.environ.get("RANK", 0)) == 0',
)
# `python -m torch.distributed.launch` tells the local rank as an argument, too, which the script's parser refuses.
_ARGUMENT = 'sys.argv = [word for word in sys.argv if not word.startswith(("--local-rank=", "--local_rank="))]'
_READS_ARGUMENTS = re.compile(r"args|argv|argument|parse|options|flags|\bfire\b|typer|click|hydra", re.IGNORECASE)
_INIT = (f"torch.cuda.set_device({LOCAL_RANK})", 'torch.distributed.init_process_group("nccl")')


def check_script(script: Script) -> Iterator[Finding]:
    """The constants after the imports, and the process group before anything is made on a device."""
    body = script.tree.body
    if not body:
        return
    if script.is_distributed:
        yield RULE.make_finding(
            script,
            body[0],
            "the script makes a process group itself: it is left as it is",
            hint="It already runs on several devices; convert it without --distributed.",
            safety=Safety.REPORT,
        )
        return
    last = last_import(script)
    bound = script.names.scopes[script.tree].bindings
    taken = [name for name in (LOCAL_RANK, IS_MAIN) if name in bound]
    if last is None or taken or script.find_indent(last) is None:
        why = f"the script uses the name {taken[0]} itself" if taken else "there are no imports to put it after"
        yield RULE.make_finding(
            script,
            body[0],
            f"{LOCAL_RANK}, {IS_MAIN} and the process group cannot be inserted: {why}",
            hint="Insert: " + "; ".join(("import os, torch", *_CONSTANTS, *_INIT)),
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )
        return
    reads = _reads_arguments(script)
    missing = [f"import {name}" for name in ("os", *(("sys",) if reads else ()), "torch") if name not in bound]
    guard = _main_guard(script)
    lines = [*missing, "", *_CONSTANTS, *((_ARGUMENT,) if reads else ()), *(() if guard else _INIT)]
    edits: list[Edit | None] = [script.insert_after(last, *lines)]
    if guard is not None:
        edits.append(script.insert_before(guard.body[0], *_INIT))
    yield RULE.make_finding(
        script,
        last,
        "each process takes the device of its local rank and joins the process group",
        edits,
        hint="torchrun, the launcher beside the script, or what else sets RANK, LOCAL_RANK and WORLD_SIZE has to start "
        "it now.",
        safety=Safety.REVIEW,
    )


def _reads_arguments(script: Script) -> bool:
    """Whether the script reads its command line, by the names that it uses, and knows no argument for the rank."""
    used = (
        *(node.id for node in script.iter_nodes(ast.Name)),
        *(node.attr for node in script.iter_nodes(ast.Attribute)),
    )
    known = any(
        isinstance(node.value, str) and node.value.lstrip("-").replace("-", "_") == "local_rank"
        for node in script.iter_nodes(ast.Constant)
    )
    return not known and any(map(_READS_ARGUMENTS.search, used))


def last_import(script: Script) -> ast.stmt | None:
    """The last import at the head of the file: from the first of torch on, before any code."""
    last = torch_import(script)
    for statement in script.tree.body[script.tree.body.index(last) + 1 :] if last else ():
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            break
        last = statement
    return last


def _main_guard(script: Script) -> ast.If | None:
    """`if __name__ == "__main__":`, unless a loader or a model is made at module level outside of it."""
    for statement in script.tree.body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            outside = [node for node in script.tree.body if node is not statement]
            runs = [
                call
                for call in (*script.loaders, *_moves(script))
                if script.names.scope_of(call).is_module
                and any(above in outside for above in script.names.iter_ancestors(call))
            ]
            return None if runs or script.find_indent(statement.body[0]) is None else statement
    return None


def _moves(script: Script) -> list[ast.Call]:
    return [
        call
        for call in script.iter_nodes(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("cuda", "to")
    ]


RULE = Rule(
    code="TP210",
    title="a process group is started (--distributed)",
    safety=Safety.REVIEW,
    severity=Severity.INFO,
    why="Training on several NPUs runs one process per device. torchrun tells each its rank; a device without an index "
    "then means the process's own.",
    reference="https://docs.pytorch.org/docs/stable/elastic/run.html",
    check=on_script(check_script),
    rewrites=(
        (
            "import torch\nmodel.cuda()\n",
            f"import torch\nimport os\n\n{_CONSTANTS[0]}\n{_CONSTANTS[1]}\n{_INIT[0]}\n{_INIT[1]}\nmodel.cuda()\n",
        ),
        (
            "import os\nimport torch\ndef main():\n    model.cuda()\nif __name__ == '__main__':\n    main()\n",
            f"import os\nimport torch\n\n{_CONSTANTS[0]}\n{_CONSTANTS[1]}\ndef main():\n    model.cuda()\n"
            f"if __name__ == '__main__':\n    {_INIT[0]}\n    {_INIT[1]}\n    main()\n",
        ),
        (
            "import argparse\nimport torch\nargs = argparse.ArgumentParser().parse_args()\nmodel.cuda()\n",
            f"import argparse\nimport torch\nimport os\nimport sys\n\n{_CONSTANTS[0]}\n{_CONSTANTS[1]}\n{_ARGUMENT}\n"
            f"{_INIT[0]}\n{_INIT[1]}\nargs = argparse.ArgumentParser().parse_args()\nmodel.cuda()\n",
        ),
        (
            "import torch\nparser.add_argument('--local_rank')\nmodel.cuda()\n",
            f"import torch\nimport os\n\n{_CONSTANTS[0]}\n{_CONSTANTS[1]}\n{_INIT[0]}\n{_INIT[1]}\n"
            "parser.add_argument('--local_rank')\nmodel.cuda()\n",
        ),
    ),
    reports=(
        "import torch\ntorch.distributed.init_process_group('nccl')\n",
        "import torch\nIS_MAIN = True\n",
        "import torch\nLOCAL_RANK = 0\nargs = parser.parse_args()\n",
        "import numpy\n",
    ),
    ignores=(),
)
