"""TP601: environment variables of CUDA and NCCL in launch scripts, images and configurations."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.knowledge.environment import VISIBLE, Variable, load_variables, order_of, out_of_order
from torchport.rules import CUDA, Style
from torchport.rules.files import FileRule, Line, TextFile
from torchport.source.kinds import Kind, is_comment

_VALUE = re.compile(r"""["']?[ \t]*[=:]?[ \t]*(?P<quote>["']?)(?P<value>\w+)(?P=quote)(?![\w^,:])""")
_DEVICES = re.compile(r"\s*[=:]?\s*[\"']?(\d+(?:\s*,\s*\d+)+)")


@functools.cache
def _names() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])({'|'.join(sorted(load_variables(), key=len, reverse=True))})(?![\w-])")


def check_file(file: TextFile, style: Style) -> Iterator[Finding]:
    """A finding for every mention outside comments."""
    for line in file.iter_lines():
        if is_comment(line.text, file.kind):
            continue
        for found in _names().finditer(line.text):
            yield _finding(file, line, found, style)


def _finding(file: TextFile, line: Line, found: re.Match[str], style: Style) -> Finding:
    variable = load_variables()[found[1]]
    if not variable.npu or variable.npu == variable.name:
        return RULE.make_finding(
            file,
            line,
            found.span(1),
            f"{variable.name} has no effect on an NPU",
            hint=variable.note[:1].upper() + variable.note[1:] + ".",
            severity=Severity.INFO,
        )
    if style is Style.AGNOSTIC:
        return RULE.make_finding(
            file,
            line,
            found.span(1),
            f"{variable.name} is {variable.npu} on the NPU",
            hint=f"Set {variable.npu} beside it.",
            severity=Severity.WARNING,
        )
    if variable.values:
        return _with_value(file, line, found, variable)
    hint = variable.note[:1].upper() + variable.note[1:] + "." if variable.note else ""
    severity = Severity.WARNING if variable.note else Severity.INFO
    devices = _DEVICES.match(line.text, found.end(1))
    if variable.npu == VISIBLE and devices is not None:
        if order_of(devices[1]):
            severity = Severity.INFO
        else:
            hint = out_of_order(devices[1])
    return RULE.make_finding(
        file,
        line,
        found.span(1),
        f"{variable.name} is {variable.npu} on the NPU",
        variable.npu,
        hint=hint,
        severity=severity,
        safety=Safety.SAFE if severity is Severity.INFO else Safety.REVIEW,
    )


def _with_value(file: TextFile, line: Line, found: re.Match[str], variable: Variable) -> Finding:
    """A variable whose values are written in another way: it changes together with its value, or stays."""
    given = _VALUE.match(line.text, found.end(1))
    new = variable.convert_value(given["value"]) if given is not None else None
    message = f"{variable.name} is {variable.npu} on the NPU"
    hint = variable.note[:1].upper() + variable.note[1:] + "."
    if given is None or new is None:
        return RULE.make_finding(
            file, line, found.span(1), message, hint=hint, severity=Severity.WARNING, safety=Safety.REPORT
        )
    quoted = given["quote"] or file.kind in (Kind.YAML, Kind.JSON)
    new = new if quoted or ";" not in new else f'"{new}"'
    whole = variable.npu + line.text[found.end(1) : given.start("value")] + new
    return RULE.make_finding(
        file,
        line,
        (found.start(1), given.end("value")),
        message,
        whole,
        hint=hint,
        severity=Severity.WARNING,
        safety=Safety.REVIEW,
    )


RULE = FileRule(
    code="TP601",
    title="environment variables of CUDA and NCCL become those of Ascend and HCCL",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="CUDA_VISIBLE_DEVICES and its kind have no effect on an NPU: a job would use the wrong devices silently.",
    reference="https://hiascend.com/doc_center/source/zh/canncommercial/601/modeldevpt/ptmigr/ptmigr_0011.html",
    kinds=frozenset({Kind.SHELL, Kind.DOCKER, Kind.YAML, Kind.JSON, Kind.SETTINGS}),
    words=(*CUDA, b"cublas"),
    check=check_file,
    rewrites=(
        ("run.sh", "CUDA_VISIBLE_DEVICES=0,1 python t.py\n", "ASCEND_RT_VISIBLE_DEVICES=0,1 python t.py\n"),
        (
            "run.sh",
            "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\r\n",
            "export PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64\r\n",
        ),
        (
            "Makefile",
            "train:\n\tCUDA_VISIBLE_DEVICES=0 python t.py\n",
            "train:\n\tASCEND_RT_VISIBLE_DEVICES=0 python t.py\n",
        ),
        ("Dockerfile", "ENV CUDA_VISIBLE_DEVICES 0\n", "ENV ASCEND_RT_VISIBLE_DEVICES 0\n"),
        (
            "run.sh",
            "export NCCL_ALGO=Ring NCCL_BUFFSIZE=4194304\n",
            'export HCCL_ALGO="level0:NA;level1:ring" HCCL_BUFFSIZE=4\n',
        ),
        ("job.yaml", "NCCL_ALGO: Ring\n", "HCCL_ALGO: level0:NA;level1:ring\n"),
        ("job.yaml", "env:\n  NCCL_SOCKET_IFNAME: eth0\n", "env:\n  HCCL_SOCKET_IFNAME: eth0\n"),
    ),
    reports=(
        ("run.sh", "export NCCL_IB_DISABLE=1\n"),
        ("run.sh", "export NCCL_ALGO=Tree,Ring\nexport NCCL_BUFFSIZE=1000\nexport NCCL_BUFFSIZE=$SIZE\n"),
        ("job.yaml", "NCCL_ALGO: ^Ring\n"),
    ),
    ignores=(
        ("run.sh", "# set CUDA_VISIBLE_DEVICES first\n"),
        ("run.sh", "export MY_CUDA_VISIBLE_DEVICES=1\n"),
        ("notes.txt", "CUDA_VISIBLE_DEVICES\n"),
        ("Makefile", "# CUDA_VISIBLE_DEVICES=0\n"),
    ),
)
