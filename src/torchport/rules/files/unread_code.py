"""TP609: Python in launch scripts, images and workflows that cannot be read as Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Style
from torchport.rules.files import FileRule, TextFile
from torchport.source.kinds import Kind, is_comment

_CODE = re.compile(r"(?<![\w.])torch\.(?:cuda|backends\.cud(?:a|nn))\b[\w.]*|\.cuda\(\)")
_IMPORTS = re.compile(r"\b(?:import|from)[ \t]+torch\b")
_TARGET = re.compile(r"_target_[\"']?\s*:\s*[\"']?$")


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for the first such name of a line; the programs that can be read have the findings of Python."""
    if not _IMPORTS.search(file.text.text):
        return
    for line in file.iter_lines():
        found = _CODE.search(line.text)
        if found is None or is_comment(line.text, file.kind) or _TARGET.search(line.text[: found.start()]):
            continue
        yield RULE.make_finding(
            file,
            line,
            found.span(),
            f"{found[0]} stands in code that cannot be read here",
            hint="Change it by hand, as in a Python file: import torch_npu, and torch.npu in place of torch.cuda.",
        )


RULE = FileRule(
    code="TP609",
    title="Python in launch scripts that cannot be read",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="Code that a launch script gives to Python runs as any other. torchport converts the code of `python -c` and "
    "of here-documents; where a shell puts it together from pieces, it cannot.",
    reference="https://github.com/Ascend/pytorch",
    kinds=frozenset({Kind.SHELL, Kind.DOCKER, Kind.YAML}),
    words=(b"cuda", b"cudnn"),
    check=check_file,
    rewrites=(),
    reports=(
        ("run.sh", "echo 'import torch; torch.cuda.synchronize()' >> bench.py\n"),
        ("run.sh", 'python -c "import torch; $BEFORE if torch.cuda.is_available() $AFTER"\n'),
    ),
    ignores=(
        ("run.sh", "# python -c 'import torch; torch.cuda.init()'\n"),
        ("c.yaml", "note: torch.cuda.amp is old\n"),
        ("run.sh", "python -c 'import torch; torch.npu.synchronize()'\n"),
    ),
)
