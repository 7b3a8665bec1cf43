"""TP170: programs of the CUDA world that Python starts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.files.tools import PROGRAMS
from torchport.source.module import Module

_STARTS = ("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn", "os.posix_spawn", "shutil.which", "asyncio.")


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every command line that names one."""
    for constant in module.iter_nodes(ast.Constant):
        if not isinstance(constant.value, str) or len(constant.value) > 5_000 or not _is_command(module, constant):
            continue
        for pattern, message, hint in PROGRAMS:
            if pattern.match(constant.value):
                yield RULE.make_finding(
                    module, constant, f"this starts {constant.value.split()[0]}: {message}", hint=hint
                )


def _is_command(module: Module, node: ast.Constant) -> bool:
    """Whether the text starts the command of a call that starts programs."""
    inner: ast.AST = node
    above = module.get_parent(node)
    while isinstance(above, ast.List | ast.Tuple | ast.JoinedStr | ast.BinOp):
        first = above.elts if isinstance(above, ast.List | ast.Tuple) else [getattr(above, "left", inner)]
        if isinstance(above, ast.JoinedStr):
            first = above.values
        if not first or first[0] is not inner:
            return False
        inner, above = above, module.get_parent(above)
    return isinstance(above, ast.Call) and (module.resolve_name(above.func) or "").startswith(_STARTS)


RULE = Rule(
    code="TP170",
    title="programs of the CUDA world that Python starts",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="nvidia-smi, nvcc and NVIDIA's profilers are not there on a machine with NPUs, whose tools answer otherwise.",
    reference="https://github.com/Ascend/pytorch",
    words=(*CUDA, b"ncu", b"nvprof"),
    check=check_module,
    rewrites=(),
    reports=(
        "import subprocess\nsubprocess.run(['nvidia-smi', '-L'])\n",
        "import os\nos.system('nvidia-smi --query-gpu=memory.used --format=csv')\n",
    ),
    ignores=("print('nvidia-smi shows more')\n", "import subprocess\nsubprocess.run(['echo', 'nvidia-smi'])\n"),
)
