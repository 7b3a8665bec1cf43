"""TP140: tests on the text of CUDA's errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

_ERROR = re.compile(r"(?:cuda|cudnn|cublas|nccl)\b.*\w{3}", re.IGNORECASE | re.DOTALL)
_MEMORY = "CUDA out of memory"
_SEARCHES = frozenset({"re.search", "re.match", "re.fullmatch", "re.findall"})
_METHODS = frozenset({"startswith", "endswith", "find", "count"})
_RAISES = frozenset({"raises", "warns", "assertRaisesRegex", "assertWarnsRegex"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every text of several words that an error's text is compared with."""
    for constant in module.iter_nodes(ast.Constant):
        text = constant.value
        if not isinstance(text, str) or " " not in text or not _ERROR.search(text):
            continue
        if not _is_tested(module, constant):
            continue
        if text.startswith(_MEMORY) and style is Style.NPU:
            yield RULE.make_finding(
                module,
                constant,
                "the NPU's error says NPU out of memory",
                [module.string_edit(constant, "CUDA", "NPU")],
                hint="torch.OutOfMemoryError is the same on any device.",
            )
        else:
            yield RULE.make_finding(
                module,
                constant,
                f"no error of an NPU says {text[:60]!r}",
                hint="Catch the exception by its type, such as torch.OutOfMemoryError, or compare with the NPU's text.",
                safety=Safety.REPORT,
            )


def _is_tested(module: Module, node: ast.Constant) -> bool:
    above = module.get_parent(node)
    while isinstance(above, ast.Tuple | ast.List):
        above = module.get_parent(above)
    match above:
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return above.left is node
        case ast.Call():
            name = above.func.attr if isinstance(above.func, ast.Attribute) else ""
            return name in _METHODS or module.resolve_name(above.func) in _SEARCHES
        case ast.keyword(arg="match"):
            call = module.get_parent(above)
            return isinstance(call, ast.Call) and (isinstance(call.func, ast.Attribute) and call.func.attr in _RAISES)
        case _:
            return False


RULE = Rule(
    code="TP140",
    title="tests on the text of CUDA's errors",
    safety=Safety.REVIEW,
    severity=Severity.WARNING,
    why='torch_npu writes "NPU out of memory": a script that looks for CUDA\'s text in an error no longer finds it, '
    "and its recovery never runs.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.cuda.OutOfMemoryError.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "try:\n    f()\nexcept RuntimeError as e:\n    if 'CUDA out of memory' in str(e):\n        g()\n",
            "try:\n    f()\nexcept RuntimeError as e:\n    if 'NPU out of memory' in str(e):\n        g()\n",
        ),
        (
            "if str(e).startswith('CUDA out of memory.'):\n    pass\n",
            "if str(e).startswith('NPU out of memory.'):\n    pass\n",
        ),
    ),
    reports=("if 'cuDNN error: CUDNN_STATUS_NOT_SUPPORTED' in str(e):\n    pass\n",),
    ignores=(
        "print('CUDA out of memory')\n",
        "if 'out of memory' in str(e):  # CUDA\n    pass\n",
        "raise RuntimeError('CUDA out of memory')\n",
    ),
)
