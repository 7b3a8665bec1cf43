"""TP180: code in strings: `exec`, `eval`, TorchScript units, `python -c`."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style, list_rules
from torchport.rules.given_text import Literal, find_argument_literals, place_finding
from torchport.rules.unexplained import RULE as UNEXPLAINED
from torchport.source.module import Module
from torchport.source.text import SourceError

_TAKES_CODE = {
    "builtins.exec": (0,),
    "builtins.eval": (0,),
    "builtins.compile": (0,),
    "torch.jit.CompilationUnit": (0,),
    "torch._C.CompilationUnit": (0,),
    "timeit.timeit": (0, 1),
    "timeit.repeat": (0, 1),
    "timeit.Timer": (0, 1),
    "torch.utils.benchmark.Timer": (0, 1),
}
_KEYWORDS = frozenset({"stmt", "setup", "source"})
_MENTION = re.compile(r"(?:cuda|nccl)[\w.:]*", re.IGNORECASE)
# Code in a string sees the names of the module around it. Blocks that are indented as a whole stand behind an `if`.
_FRAMES = ("import torch\n", "import torch\nif True:\n")
_LONGEST = 20_000
_IMPORTS = re.compile(r"^[ \t]*(?:import|from)[ \t]+torch\b", re.MULTILINE)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding at the place of everything in such code that the other rules would change or report."""
    given: dict[int, Literal] = {id(literal): literal for literal in find_argument_literals(module, _given(module))}
    given |= {id(text): text for text in _programs(module)}
    for literal in given.values():
        content = module.string_content(literal)
        start, text = content or (None, literal.value if isinstance(literal, ast.Constant) else "")
        if not isinstance(text, str) or len(text) > _LONGEST or not _MENTION.search(text):
            continue
        said = list(_inside(module, literal, start, text, style))
        yield from said
        if not said:
            found = _MENTION.search(text)
            assert found is not None
            yield _report(module, literal, f"the code in this string says {found[0]}", content, found.span())


def _programs(module: Module) -> Iterator[ast.Constant]:
    """Texts of several lines that import torch, whatever they are for: they are written to a file, or sent away."""
    for constant in module.iter_nodes(ast.Constant):
        text = constant.value
        if not isinstance(text, str) or "\n" not in text or len(text) > _LONGEST or not _IMPORTS.search(text):
            continue
        if not isinstance(module.get_parent(constant), ast.Expr | ast.JoinedStr):
            yield constant


def _given(module: Module) -> Iterator[ast.expr]:
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func) or ""
        positions = _TAKES_CODE.get(name)
        if positions is not None:
            yield from (call.args[position] for position in positions if position < len(call.args))
            yield from (keyword.value for keyword in call.keywords if keyword.arg in _KEYWORDS)
        elif name.startswith("subprocess.") and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
            words = call.args[0].elts
            for option, code in itertools.pairwise(words):
                python = re.search("executable|python", ast.unparse(words[0]))
                if python and isinstance(option, ast.Constant) and option.value == "-c":
                    yield code


def _inside(module: Module, literal: Literal, start: int | None, text: str, style: Style) -> Iterator[Finding]:
    """The findings of the other rules in the code; none where it cannot be read as Python."""
    encoding = module.text.encoding
    for frame in _FRAMES:
        data = frame.encode() + text.encode(encoding, "surrogatepass")
        try:
            inner = Module(module.text.path, data, module.project)
        except (SourceError, RecursionError, MemoryError):
            continue
        for rule in list_rules():
            if rule.after is not None or rule.code in (RULE.code, UNEXPLAINED.code):
                continue
            for one in rule.check(inner, style):
                where = one.location
                if where is None or (one.severity is Severity.INFO and not one.fix):
                    continue
                first = inner.text.position_to_offset(where.line, 0) + len(
                    inner.text.lines[where.line - 1][: where.column - 1].encode(inner.text.encoding)
                )
                last = inner.text.position_to_offset(where.end_line, 0) + len(
                    inner.text.lines[where.end_line - 1][: where.end_column - 1].encode(inner.text.encoding)
                )
                shift = len(frame.encode())
                finding = RULE.make_finding(
                    module,
                    literal,
                    f"in the code of this string: {one.message}",
                    hint=_HINT,
                    severity=max(one.severity, Severity.WARNING, key=_ORDER.index),
                )
                if start is not None:
                    finding = place_finding(module, finding, start + first - shift, start + last - shift)
                yield finding
        return


_ORDER = (Severity.INFO, Severity.WARNING, Severity.ERROR)
_HINT = "Code in strings is not edited: change it by hand, and anything that is compared with it."


def _report(
    module: Module, literal: Literal, message: str, content: tuple[int, str] | None, span: tuple[int, int]
) -> Finding:
    finding = RULE.make_finding(module, literal, message, hint=_HINT)
    if content is None:
        return finding
    start, text = content
    first = start + len(text[: span[0]].encode(module.text.encoding, "surrogatepass"))
    last = start + len(text[: span[1]].encode(module.text.encoding, "surrogatepass"))
    return place_finding(module, finding, first, last)


RULE = Rule(
    code="TP180",
    title="code in strings",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="What exec, eval, a TorchScript unit or `python -c` is given runs as any other code, and says CUDA as well.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.jit.CompilationUnit.html",
    words=CUDA,
    check=check_module,
    rewrites=(),
    reports=(
        "exec('import torch\\nx = torch.ones(1).cuda()')\n",
        "import torch\nu = torch.jit.CompilationUnit('''\ndef f(x):\n    return x.cuda()\n''')\n",
        "y = eval('torch.cuda.is_available()')\n",
        "exec('cuda = 1')\n",
    ),
    ignores=("send('x.cuda()')\n",),
)
