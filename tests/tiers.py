"""The tests of `make test`, which tests/quick.txt lists: a test that falls out of them is noticed.

    python tests/tiers.py              # writes the list anew
    python tests/tiers.py "not device" # prints that marker expression without the campaigns

The list has test functions, not their parameters.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTED = Path(__file__).with_name("quick.txt")
FOLDERS = ("tests/unit", "tests/vnpu/ops")
DEMO = "tests/vnpu/port/test_ported_digits.py::test_fp32_holds_step_by_step"


def marks(decorators: list[ast.expr]) -> set[str]:
    """Names of the marks that decorators put on a test."""
    return {node.attr for one in decorators for node in ast.walk(one) if isinstance(node, ast.Attribute)}


def functions(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Each test function of a file (`test_x`, `TestX::test_y`) with its marks and the marks of its module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = set[str]()
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "pytestmark" for one in node.targets):
            module = marks([node.value])
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, module | marks(node.decorator_list)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test_"):
                    yield f"{node.name}::{inner.name}", module | marks(inner.decorator_list)


def quick() -> list[str]:
    """The test functions that `make test` runs."""
    found = [DEMO]
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith(("tests/vnpu/", "tests/unit/")):
            whole = name.startswith(tuple(f"{folder}/" for folder in FOLDERS))
            found += [
                f"{name}::{test}"
                for test, own in functions(path)
                if (whole and "processes" not in own) or "device" in own
            ]
    return sorted(found)


def without_campaigns(expression: str) -> str:
    """The marker expression of tests that fulfil `expression` and are of no campaign, which `addopts` leaves out."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    campaigns = re.search(r"-m '(.*)'", settings["ini_options"]["addopts"])
    assert campaigns
    return f"{expression} and {campaigns[1]}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(without_campaigns(sys.argv[1]))
        sys.exit()
    LISTED.write_text("\n".join(quick()) + "\n", encoding="utf-8")
