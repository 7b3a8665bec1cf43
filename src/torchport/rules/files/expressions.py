"""TP611: expressions and names of torch as values of a configuration or a variable.

`"device": "$torch.device('cuda:0')"` of a MONAI bundle, `${eval:torch.cuda.is_available()}`, and
`TENSOR_TYPE=torch.cuda.HalfTensor` are read as the Python that they become.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.api import find_api
from torchport.rules import Style
from torchport.rules.files import FileRule, Line, TextFile
from torchport.rules.pieces import inspect_piece
from torchport.source.kinds import Kind, is_comment

_SAYS = re.compile(r"cuda|nccl")
# A string of JSON or YAML without escapes, and a plain word of YAML up to the end of its line.
_QUOTED = re.compile(r"""(?P<quote>["'])(?P<body>(?:(?!(?P=quote))[^\\\n])*)(?P=quote)""")
_PLAIN = re.compile(r"(?::|^\s*-)[ \t]+(?P<quote>)(?P<body>[^\s\"'#&*!|>%@`{\[][^#\n]*?)[ \t]*$")
_EXPRESSION = re.compile(r"(?P<mark>\$(?!\{)|\$\{eval:)?(?P<code>[^{}]*(?:\{[^{}]*\}[^{}]*)*?)(?P<end>\})?")
_IS_CODE = re.compile(r"[\w.]+\(.*\)", re.DOTALL)
_REFERENCE = re.compile(r"@[\w:#]+")  # of MONAI: another value of the configuration
_FRAME = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
_NAME = re.compile(r"""(?<=[=:\s"'])(?P<name>torch\.cuda(?:\.\w+)+)(?=[ \t]*(?:$|["',;}\])#])|(?P<more>[ \t]))""")
_VARIABLE = re.compile(r"""[A-Za-z_][\w.-]*["']?(?:=|[ \t]*:[ \t]*)["']?$|--[\w-]+[= ]["']?$""")
_HINT = "Only its form says that this is code: check it."


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for each name of CUDA's in such a value, with the edit that Python's rules would make of it."""
    for line in file.iter_lines():
        if not _SAYS.search(line.text) or is_comment(line.text, file.kind):
            continue
        patterns = {Kind.JSON: [_QUOTED], Kind.YAML: [_QUOTED, _PLAIN]}.get(file.kind, [])
        for value in (found for pattern in patterns for found in pattern.finditer(line.text)):
            yield from _expression(file, line, value, style)
        for found in _NAME.finditer(line.text):
            ends = found["more"] is None or file.kind is Kind.SHELL  # of a configuration, it is prose that goes on
            if ends and _VARIABLE.search(line.text[: found.start()]):
                yield from _name(file, line, found, style)


def _expression(file: TextFile, line: Line, value: re.Match[str], style: Style) -> Iterator[Finding]:
    read = _EXPRESSION.fullmatch(value["body"])
    if read is None or not _SAYS.search(read["code"]) or (read["mark"] == "${eval:") != (read["end"] is not None):
        return
    code = _REFERENCE.sub(lambda found: "r" * len(found[0]), read["code"])
    if not (read["mark"] or "torch." in code) or not _IS_CODE.search(code) or not _parses(code):
        return
    begin = value.start("body") + read.start("code")
    for piece in inspect_piece(file.text.path, _FRAME, code.encode(), style, without=_SILENT) or ():
        one, span = piece.finding, (begin + piece.start, begin + piece.end)
        edits = piece.edits if style is Style.NPU else ()
        texts = [edit.replacement.decode() for edit in edits]
        if len(edits) == 1 and not any(char in texts[0] for char in f"{value['quote']}\\\n" if char):
            edited = (begin + edits[0].start, begin + edits[0].end)
            yield RULE.make_finding(file, line, edited, one.message, texts[0], hint=_HINT)
        else:
            hint = one.hint or "Change it by hand."
            yield RULE.make_finding(file, line, span, one.message, hint=hint, severity=Severity.WARNING)


def _parses(code: str) -> bool:
    try:
        tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return code.isascii() and code == code.strip() and any(isinstance(node, ast.Call) for node in ast.walk(tree))


def _name(file: TextFile, line: Line, found: re.Match[str], style: Style) -> Iterator[Finding]:
    known = find_api(found["name"])
    if known is None or not known[0].npu.startswith("torch.npu") or style is not Style.NPU:
        yield RULE.make_finding(
            file,
            line,
            found.span("name"),
            f"{found['name']} is torch's name for CUDA",
            hint="If torch reads it, write the NPU's.",
            severity=Severity.WARNING,
        )
        return
    new = known[0].npu + (f".{known[1]}" if known[1] else "")
    yield RULE.make_finding(file, line, found.span("name"), f"{found['name']} is {new} on the NPU", new, hint=_HINT)


_SILENT = frozenset({"TP195", "TP180", "TP181"})  # rules for words of which nothing else is known

RULE = FileRule(
    code="TP611",
    title="expressions of Python in configurations",
    safety=Safety.REVIEW,
    severity=Severity.INFO,
    why="A configuration may hold code that its reader evaluates: MONAI's bundles, resolvers of OmegaConf, the name of "
    "a tensor type. It runs as any other code, and says CUDA as well.",
    reference="https://docs.monai.io/en/stable/config_syntax.html",
    kinds=frozenset({Kind.SHELL, Kind.YAML, Kind.JSON, Kind.SETTINGS}),
    words=(b"cuda", b"nccl"),
    check=check_file,
    rewrites=(
        (
            "train.json",
            "{\"device\": \"$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\"}\n",
            "{\"device\": \"$torch.device('npu:0' if torch.npu.is_available() else 'cpu')\"}\n",
        ),
        (
            "train.json",
            '{"initialize": [\n  "$torch.cuda.set_device(@device)"\n]}\n',
            '{"initialize": [\n  "$torch.npu.set_device(@device)"\n]}\n',
        ),
        (
            "c.yaml",
            "there: ${eval:torch.cuda.is_available()}\nplace: torch.device('cuda')\n",
            "there: ${eval:torch.npu.is_available()}\nplace: torch.device('npu')\n",
        ),
        ("run.sh", "TENSOR_TYPE=torch.cuda.DoubleTensor pytest\n", "TENSOR_TYPE=torch.npu.DoubleTensor pytest\n"),
    ),
    reports=(
        ("c.yaml", "properties: torch.cuda.never_heard_of\n"),
        ("c.json", '{"call": "$torch.cuda.never_heard_of(@name)"}\n'),
    ),
    ignores=(
        ("c.yaml", "note: torch.cuda.amp is old\n"),
        ("c.json", '{"text": "call torch.cuda.init() first"}\n'),
        ("c.json", '{"device": "$torch.device(\'cpu\')"}\n'),
        ("run.sh", "echo torch.cuda.is_available\n"),
    ),
)
