"""TP180: code in strings: `exec`, `eval`, TorchScript units, `python -c`, code that is written line by line.

Plain Python in one literal without escapes is edited in its place; of other code a person is told.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.given_text import Literal, find_argument_literals, place_finding, shift_edits
from torchport.rules.pieces import Piece, inspect_piece
from torchport.rules.unexplained import RULE as UNEXPLAINED
from torchport.source.module import Module

_SCRIPTED = frozenset({"torch.jit.CompilationUnit", "torch._C.CompilationUnit"})  # TorchScript knows no npu()
_TAKES_CODE = {
    "builtins.exec": (0,),
    "builtins.eval": (0,),
    "builtins.compile": (0,),
    **dict.fromkeys(_SCRIPTED, (0,)),
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
_IMPORT = re.compile(r"^([ \t]*)import torch[ \t]*$", re.MULTILINE)
_IMPORT_IN_LINE = re.compile(r"\bimport torch(?=[ \t]*;)")
# Methods that gather lines of code, and what tells that the lines are Python.
_GATHERS = frozenset({"append", "extend", "insert", "write", "writeline", "writelines"})
_IS_PYTHON = re.compile(r"\s*(?:(?:import|from)[ \t]+\w[\w.]*\s*|def[ \t]+\w+\(.*:)", re.DOTALL)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding at the place of everything in such code that the other rules would change or report."""
    taken = dict(_given(module))
    given: dict[int, Literal] = {id(literal): literal for literal in find_argument_literals(module, taken)}
    given |= {id(text): text for text in (*_programs(module), *_gathered(module))}
    scripted = {id(one) for one in find_argument_literals(module, [node for node, is_ in taken.items() if is_])}
    for literal in given.values():
        content = module.string_content(literal)
        start, text = content or (None, literal.value if isinstance(literal, ast.Constant) else "")
        if not isinstance(text, str) or len(text) > _LONGEST or not _MENTION.search(text):
            continue
        plain = isinstance(literal, ast.Constant) and id(literal) not in scripted and style is Style.NPU
        said = list(_inside(module, literal, start, text, style, plain=plain))
        yield from said
        if any(one.fix for one in said) and start is not None:
            yield from _import(module, literal, start, text)
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


def _gathered(module: Module) -> Iterator[ast.Constant]:
    """Lines of code that one object gathers: `code.append("x = x.cuda()")`, where it is given an import or a function
    as well."""
    lines: dict[str, list[ast.Constant]] = {}
    for call in module.iter_nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _GATHERS:
            for argument in call.args:
                parts = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
                lines.setdefault(ast.unparse(call.func.value), []).extend(
                    part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
    for texts in lines.values():
        if any(_IS_PYTHON.fullmatch(str(one.value)) for one in texts):
            yield from (one for one in texts if _MENTION.search(str(one.value)) and _is_code(str(one.value)))


def _is_code(text: str) -> bool:
    """Whether a line of code is one: a statement that is no bare word."""
    with contextlib.suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        body = ast.parse(text.strip() + (" pass" if text.rstrip().endswith(":") else "")).body
        return not any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Name | ast.Constant) for one in body)
    return False


def _import(module: Module, literal: Literal, start: int, text: str) -> Iterator[Finding]:
    """torch_npu behind the import of torch in a program that is edited: it may run in a process of its own."""
    if "torch_npu" in text:
        return
    line = _IMPORT.search(text) if "\n" in text else None
    found = line or _IMPORT_IN_LINE.search(text)
    if found is None:
        return
    at = start + len(text[: found.end()].encode(module.text.encoding, "surrogatepass"))
    new = f"{module.text.newline}{line[1]}import torch_npu" if line else ", torch_npu"
    edit = Edit(at, at, new.encode(module.text.encoding))
    finding = RULE.make_finding(
        module, literal, "in the code of this string: torch_npu is imported, it adds the NPU to torch", [edit]
    )
    first = start + len(text[: found.start()].encode(module.text.encoding, "surrogatepass"))
    yield place_finding(module, finding, first, at)


def _given(module: Module) -> Iterator[tuple[ast.expr, bool]]:
    """The arguments that are code, and whether it is TorchScript."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func) or ""
        positions = _TAKES_CODE.get(name)
        if positions is not None:
            words = [call.args[position] for position in positions if position < len(call.args)]
            words += [keyword.value for keyword in call.keywords if keyword.arg in _KEYWORDS]
            yield from ((word, name in _SCRIPTED) for word in words)
        elif name.startswith("subprocess.") and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
            command = call.args[0].elts
            for option, code in itertools.pairwise(command):
                python = re.search("executable|python", ast.unparse(command[0]))
                if python and isinstance(option, ast.Constant) and option.value == "-c":
                    yield code, False


def _inside(
    module: Module, literal: Literal, start: int | None, text: str, style: Style, *, plain: bool
) -> Iterator[Finding]:
    """The findings of the other rules in the code, with their edits where it is `plain`; none where it cannot be read
    as Python."""
    header = " pass" if "\n" not in text and text.endswith(":") else ""  # of a block that other lines fill
    code = (text + header).encode(module.text.encoding, "surrogatepass")
    read = (
        inspect_piece(module.text.path, frame, code, style, project=module.project, without=_SILENT)
        for frame in _FRAMES
    )
    for piece in next((pieces for pieces in read if pieces is not None), ()):
        one = piece.finding
        edits = _edits(module, literal, piece, start) if plain and start is not None else []
        finding = RULE.make_finding(
            module,
            literal,
            f"in the code of this string: {one.message}",
            edits,
            hint=one.hint if edits else _HINT,
            safety=one.safety if edits else Safety.REPORT,
            severity=one.severity if edits else max(one.severity, Severity.WARNING, key=_ORDER.index),
        )
        if start is not None:
            finding = place_finding(module, finding, start + piece.start, start + piece.end)
        yield finding


def _edits(module: Module, literal: Literal, piece: Piece, start: int) -> list[Edit | None]:
    """The edits of a finding in the file; none where one does not fit between the quotes of the literal."""
    quote = module.text.decode_range(*module.text.span(literal))[-1:].encode()
    for edit in piece.edits:
        if not edit.replacement.isascii() or any(byte in edit.replacement for byte in (quote, b"\\", b"\n")):
            return []
    return shift_edits(piece.edits, start)


_SILENT = frozenset({"TP180", UNEXPLAINED.code})
_ORDER = (Severity.INFO, Severity.WARNING, Severity.ERROR)
_HINT = "The code of this string is not edited: change it by hand, and anything that is compared with it."


def _report(
    module: Module, literal: Literal, message: str, content: tuple[int, str] | None, span: tuple[int, int]
) -> Finding:
    finding = RULE.make_finding(module, literal, message, hint=_HINT, safety=Safety.REPORT, severity=Severity.WARNING)
    if content is None:
        return finding
    start, text = content
    first = start + len(text[: span[0]].encode(module.text.encoding, "surrogatepass"))
    last = start + len(text[: span[1]].encode(module.text.encoding, "surrogatepass"))
    return place_finding(module, finding, first, last)


RULE = Rule(
    code="TP180",
    title="code in strings",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="What exec, eval, a TorchScript unit or `python -c` is given runs as any other code, and says CUDA as well.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.jit.CompilationUnit.html",
    words=CUDA,
    check=check_module,
    rewrites=(
        ("y = eval('torch.cuda.is_available()')\n", "y = eval('torch.npu.is_available()')\n"),
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import torch; torch.cuda.init()'])\n",
            "import subprocess, sys\n"
            "subprocess.run([sys.executable, '-c', 'import torch, torch_npu; torch.npu.init()'])\n",
        ),
        (
            "code.append('import torch')\ncode.append('x = torch.ones(1).cuda()')\n",
            "code.append('import torch')\ncode.append('x = torch.ones(1).npu()')\n",
        ),
        (
            "import torch\nCODE = 'x = torch.ones(1).cuda()'\nexec(CODE)\n",
            "import torch\nCODE = 'x = torch.ones(1).npu()'\nexec(CODE)\n",
        ),
    ),
    reports=(
        "exec('import torch\\nx = torch.ones(1).cuda()')\n",
        "import torch\nu = torch.jit.CompilationUnit('''\ndef f(x):\n    return x.cuda()\n''')\n",
        "exec('cuda = 1')\n",
        "file.write('import torch\\n')\nfile.write('x = torch.ones(1).cuda()\\n')\n",
    ),
    ignores=(
        "send('x.cuda()')\n",
        "log.append('torch.cuda.is_available()')\n",
        "log.append('import it')\nlog.append('cuda was there')\nlog.append('cuda')\n",
        "exec('x = torch.ones(1).npu()')\n",
    ),
)
