"""TP171: lines for a shell in strings: `os.system("CUDA_VISIBLE_DEVICES=0 python w.py")`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.knowledge.environment import load_variables
from torchport.rules import CUDA, Rule, Style
from torchport.rules.files import TextFile, file_rules
from torchport.rules.files.tools import PROGRAMS
from torchport.rules.given_text import Literal, find_argument_literals, place_finding, shift_edits
from torchport.rules.plain_words import PlainWords
from torchport.source.calls import find_keyword
from torchport.source.flow import is_command_line
from torchport.source.kinds import Kind
from torchport.source.module import Module

_SHELLS = frozenset(
    {
        "os.system",
        "os.popen",
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
        "commands.getoutput",
        "asyncio.create_subprocess_shell",
        "asyncio.subprocess.create_subprocess_shell",
        "pty.spawn",
    }
)
_PROGRAM_STARTS = "subprocess."
_SETS = re.compile(r"(?<![\w$-])([A-Z][A-Z0-9_]*)=(?!=)")
_START = re.compile(r"\s*(?:(?:export|env|set)\s+)?(?:[A-Z][A-Z0-9_]*=\S*\s*)+")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|%[sdi]")
_TOOLS = "TP603"
_WHOLE_FILES = "TP610"  # says which words a file does not define
_LONGEST = 5_000


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """What the rules for launch scripts find in a line that a shell is given, at its place in the string."""
    given = {id(literal): literal for literal in find_argument_literals(module, _lines(module))}
    for literal in given.values():
        yield from _in_shell(module, literal, style)
    plain = PlainWords(module)
    for constant in module.iter_nodes(ast.Constant):
        above = module.get_parent(constant)
        if id(constant) in given or id(above) in given or isinstance(above, ast.Expr):
            continue
        text = constant.value
        if (
            isinstance(text, str)
            and len(text) <= _LONGEST
            and _starts_with_variable(text)
            and not plain.explain_text(constant)
        ):
            yield RULE.make_finding(
                module,
                above if isinstance(above, ast.JoinedStr) else constant,
                "this text sets a variable of CUDA, perhaps for a program that is started with it",
                hint="If it is a command line, write the NPU's variable: ASCEND_RT_VISIBLE_DEVICES=0.",
                safety=Safety.REPORT,
                severity=Severity.WARNING,
            )


def _lines(module: Module) -> Iterator[ast.expr]:
    """The arguments that are lines for a shell."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func) or ""
        if name in _SHELLS:
            yield from call.args[:1]
        elif name.startswith(_PROGRAM_STARTS) and call.args:
            shell = find_keyword(call, "shell")
            words = call.args[0]
            if isinstance(shell, ast.Constant) and shell.value:
                yield words.elts[0] if isinstance(words, ast.List | ast.Tuple) and words.elts else words
            elif isinstance(words, ast.List | ast.Tuple):
                yield from _after_c(words.elts)
    lists: list[ast.List | ast.Tuple] = [*module.iter_nodes(ast.List), *module.iter_nodes(ast.Tuple)]
    for one in lists:
        if is_command_line(one):
            yield from (word for word in one.elts if _sets_option(word))


def _sets_option(word: ast.expr) -> bool:
    """Whether it is a text such as "--device=cuda"."""
    first = word.values[0] if isinstance(word, ast.JoinedStr) and word.values else word
    text = first.value if isinstance(first, ast.Constant) else None
    return isinstance(text, str) and re.match(r"--[\w-]+=", text) is not None


def _after_c(words: list[ast.expr]) -> Iterator[ast.expr]:
    """`["bash", "-c", LINE]`."""
    texts = [word.value if isinstance(word, ast.Constant) else None for word in words]
    if texts and str(texts[0]).rpartition("/")[2] in ("bash", "sh", "zsh"):
        for option, line in zip(texts, words[1:], strict=False):
            if option in ("-c", "-lc", "-ic"):
                yield line


def _in_shell(module: Module, literal: Literal, style: Style) -> Iterator[Finding]:
    content = module.string_content(literal)
    if content is None:
        text = literal.value if isinstance(literal, ast.Constant) else ""
        if len(str(text)) <= _LONGEST and _sets_variable(str(text)):
            yield RULE.make_finding(module, literal, "this line for a shell sets a variable of CUDA", [None])
        return
    start, text = content
    if len(text) > _LONGEST:
        return
    holes = [found.span() for found in _PLACEHOLDER.finditer(text)]
    plain = _PLACEHOLDER.sub(lambda found: "0" * len(found[0]), text)
    encoding = module.text.encoding
    for rule in file_rules():
        if Kind.SHELL not in rule.kinds or rule.code == _WHOLE_FILES:
            continue
        for one in rule.check(TextFile(module.text.path, plain.encode(encoding), Kind.SHELL), style):
            where = one.location
            if where is None or (rule.code == _TOOLS and _is_program_of(text, where.column)):
                continue  # TP170 has said what is started
            lines = plain.encode(encoding).split(b"\n")
            before = sum(len(line) + 1 for line in lines[: where.line - 1])
            first = before + len(lines[where.line - 1].decode(encoding)[: where.column - 1].encode(encoding))
            last = before + len(lines[where.line - 1].decode(encoding)[: where.end_column - 1].encode(encoding))
            open_ = _over(one.fix, holes, text, encoding)
            fix = [] if rule.code == _TOOLS or open_ else list(one.fix)
            message = "this is CUDA's, with a part that is known when it runs" if open_ else one.message
            finding = RULE.make_finding(
                module,
                literal,
                message,
                shift_edits(fix, start),
                hint=one.hint,
                severity=one.severity if fix or one.severity is not Severity.INFO or not one.fix else Severity.WARNING,
                safety=one.safety if fix else Safety.REPORT,
            )
            yield place_finding(module, finding, start + first, start + max(last, first))


def _is_program_of(text: str, column: int) -> bool:
    return any(pattern.match(text) for pattern, _, _ in PROGRAMS) and column == 1


def _over(edits: tuple[Edit, ...], holes: list[tuple[int, int]], text: str, encoding: str) -> bool:
    """Whether an edit replaces what is only known when the program runs."""
    spans = [(len(text[:first].encode(encoding)), len(text[:last].encode(encoding))) for first, last in holes]
    return any(edit.start < last and first < edit.end for edit in edits for first, last in spans)


def _starts_with_variable(text: str) -> bool:
    """Whether a text is a command line with a variable in front, not a sentence that names one."""
    found = _START.match(text)
    return found is not None and _sets_variable(found[0])


def _sets_variable(text: str) -> bool:
    return any(found[1] in load_variables() and load_variables()[found[1]].npu for found in _SETS.finditer(text))


RULE = Rule(
    code="TP171",
    title="lines for a shell in strings",
    safety=Safety.REVIEW,
    severity=Severity.INFO,
    why="What a script gives to a shell starts a process of its own, to which the same applies as to a launch script: "
    "with CUDA_VISIBLE_DEVICES it would use the wrong NPUs silently.",
    reference="https://github.com/Ascend/pytorch",
    words=(*CUDA, b"cublas"),
    check=check_module,
    rewrites=(
        (
            "import os\nos.system('CUDA_VISIBLE_DEVICES=0 python w.py')\n",
            "import os\nos.system('ASCEND_RT_VISIBLE_DEVICES=0 python w.py')\n",
        ),
        (
            "import subprocess\nline = f'CUDA_VISIBLE_DEVICES={i} python w.py --device cuda'\n"
            "subprocess.run(line, shell=True)\n",
            "import subprocess\nline = f'ASCEND_RT_VISIBLE_DEVICES={i} python w.py --device npu'\n"
            "subprocess.run(line, shell=True)\n",
        ),
        (
            "import subprocess\nsubprocess.Popen(['bash', '-c', 'export CUDA_LAUNCH_BLOCKING=1; ./w'])\n",
            "import subprocess\nsubprocess.Popen(['bash', '-c', 'export ASCEND_LAUNCH_BLOCKING=1; ./w'])\n",
        ),
        (
            "import os\nos.system('CUDA_VISIBLE_DEVICES=%d python w.py' % i)\n",
            "import os\nos.system('ASCEND_RT_VISIBLE_DEVICES=%d python w.py' % i)\n",
        ),
        (
            "import subprocess\nsubprocess.run(['python', 'w.py', '--device=cuda', '--name=cuda'])\n",
            "import subprocess\nsubprocess.run(['python', 'w.py', '--device=npu', '--name=cuda'])\n",
        ),
    ),
    reports=(
        "import os\nos.system('cd csrc && nvcc -c k.cu')\n",
        "import subprocess\nsubprocess.run(['echo', 'CUDA_VISIBLE_DEVICES=0'])\n",
        "line = 'CUDA_VISIBLE_DEVICES=0 python w.py'\nsend(line)\n",
        "import os\nos.system(f'python w.py --device=cuda:{i}')\n",
    ),
    ignores=("print('CUDA_VISIBLE_DEVICES=0 python w.py')\n", "'''CUDA_VISIBLE_DEVICES=0 python w.py'''\n"),
)
