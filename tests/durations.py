"""Prints the slowest tests of the last run: `make test` and `make check` keep what each test took in build/durations.

python tests/durations.py [COUNT]
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "build/durations"


def main(count: int) -> None:
    rows: list[tuple[float, str]] = []
    for path in sorted(FOLDER.glob("*.xml")):
        cases = list(ElementTree.parse(path).iter("testcase"))
        took = [float(case.get("time") or 0) for case in cases]
        print(f"{path.stem}: {len(cases)} tests, {sum(took):.0f} s")
        rows += [(time, f"{case.get('classname')}::{case.get('name')}") for time, case in zip(took, cases, strict=True)]
    for time, name in sorted(rows, reverse=True)[:count]:
        print(f"{time:8.1f} s  {name}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 40)
