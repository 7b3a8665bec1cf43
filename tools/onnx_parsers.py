"""Derive which ONNX operators CANN's parser takes, in which opsets, from CANN's public operator sources.

  python tools/onnx_parsers.py FOLDER    the repositories ops-nn, ops-math, ops-cv, ops-transformer lie in FOLDER

Writes `src/torchport/knowledge/onnx_parsers.toml`. Each operator's plugin registers a name such as "ai.onnx::13::Conv"
for each opset; what ATC finds no registration for it refuses ("No parser is registered for Op").
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from itertools import count, groupby
from pathlib import Path

import onnx.defs

TARGET = Path(__file__).resolve().parent.parent / "src/torchport/knowledge/onnx_parsers.toml"
REGISTERED = re.compile(r"ai\.onnx::(\d+)::(\w+)")
VERSION = re.compile(r'set_cann_package\(([\w-]+) VERSION "([\d.]+)"')
HEAD = """\
# Opsets in which CANN's parser takes each operator of ONNX. Written by tools/onnx_parsers.py, which says from what.
# Reader: torchport.knowledge.onnx. Operators of ONNX that are not here have no plugin in these sources.
source = "registrations of the plugins in {source}"

[opsets]
"""


def ranges(numbers: set[int]) -> str:
    """1 2 3 5 as "1-3 5"."""
    counter = count()
    runs = [list(run) for _, run in groupby(sorted(numbers), key=lambda number: number - next(counter))]
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def main() -> None:
    """Read the folder that is given and write the table."""
    root = Path(sys.argv[1])
    found: dict[str, set[int]] = defaultdict(set)
    for path in root.rglob("*.cpp"):
        for version, name in REGISTERED.findall(path.read_text(encoding="utf-8", errors="replace")):
            found[name].add(int(version))
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    texts = sorted(path.read_text(encoding="utf-8") for path in root.glob("*/version.cmake"))
    versions = [said.groups() for text in texts if (said := VERSION.search(text)) and said[1] != "opbase"]
    source = ", ".join(f"{name.replace('_', '-')} {version}" for name, version in sorted(versions))
    rows = [f'{name} = "{ranges(found[name])}"' for name in sorted(found) if name in known]
    TARGET.write_text(HEAD.format(source=source) + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
