"""Analyse a file or a folder."""

from __future__ import annotations

from pathlib import Path

from torchport.convert.inspection import inspect_source
from torchport.convert.project import python_files, summary
from torchport.findings import Finding, Result, hash_bytes
from torchport.rules import Style
from torchport.source.project import require


def analyze_tree(root: Path, style: Style = Style.NPU) -> Result:
    """Findings for every Python file at or below `root`. Raises TorchportError where `root` does not exist."""
    require(root)
    findings: list[Finding] = []
    inputs: dict[str, str] = {}
    for _, name, data in python_files(root, findings):
        inputs[name] = hash_bytes(data)
        findings += inspect_source(data, name, style)
    data_out = {"root": str(root), "style": style.value, "summary": summary(findings, len(inputs))}
    return Result("analyze", tuple(findings), data_out, inputs)
