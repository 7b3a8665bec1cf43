"""The parameters of libopapi's functions: signatures.json has those that torch_npu can ask for,
signatures_mindspore.json those that only MindSpore does. Runs at build, standard library only.
"""

import json
from pathlib import Path
from typing import Any


def of_torch_npu(tables: Path) -> dict[str, Any]:
    return _read(tables / "signatures.json")


def of_mindspore(tables: Path) -> dict[str, Any]:
    return _read(tables / "signatures_mindspore.json")


def of_all(tables: Path) -> dict[str, Any]:
    """By name, from the two files of the folder `tables`."""
    return of_torch_npu(tables) | of_mindspore(tables)


def _read(path: Path) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return rows
