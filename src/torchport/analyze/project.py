"""Analyse a file or a folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchport.convert import Extras, preview_tree
from torchport.findings import Result
from torchport.rules import Style


def analyze_tree(root: Path, style: Style = Style.NPU) -> Result:
    """Findings for every file at or below `root` that can be converted; what has a fix would be done by `convert`.

    Raises TorchportError where `root` does not exist.
    """
    preview = preview_tree(root, style, Extras(support=True))
    data = {key: value for key, value in preview.data.items() if key != "diff"}
    return dataclasses.replace(preview, command="analyze", data=data)
