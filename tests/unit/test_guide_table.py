"""Every code sample of the porting guide is a test, or there is a reason why it is not: guide_samples.toml.

The guide itself is not in the repository. With TORCHPORT_GUIDE, the folder of its text files, this finds the samples in
it and compares; without, the table is held against the tests that it names.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
TABLE = tomllib.loads((HERE / "guide_samples.toml").read_text("utf-8"))["samples"]
MINDTORCH = "004"  # the file about PyTorch scripts on MindSpore, another framework
BULLET = re.compile(r"\s*(?:[•·◦–-]|\d+[.)])\s")
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENT = " " * 4
STATEMENT = re.compile(
    r"(?:import|from|with|def|class|for|if|try|except|return|export|python3?|pip3|source|\$|>>>)\b[ :]?[\x00-\x7f]*$|[\w.]+(?: = |\()[\x00-\x7f]*$"
)


def blocks(text: str) -> Iterator[str]:
    """What is fenced, and runs of statements and of indented lines that are no list; mostly ASCII, as code is and this
    prose is not.
    """
    yield from FENCED.findall(text)
    run: list[str] = []
    for line in [*FENCED.sub("", text).split("\n"), "end"]:
        if STATEMENT.match(line) or (line.startswith(INDENT) and line.strip() and not BULLET.match(line)):
            run.append(line)
        elif line.strip() and run:
            block, run = "\n".join(run), []
            if sum(character < "\x80" for character in block) > 0.6 * len(block):
                yield block


def identifier(block: str) -> str:
    """Of a sample, whatever its white space."""
    return hashlib.sha256("".join(block.split()).encode()).hexdigest()[:10]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["what"])
def test_row_names_a_test_or_a_reason(row: dict[str, object]) -> None:
    assert row.keys() - {"what", "blocks"} in ({"tests"}, {"reason"})
    assert row["blocks"]
    for name in row.get("tests", ()):  # type: ignore[attr-defined]
        file, _, function = name.partition("::")
        tree = ast.parse((TESTS / file).read_text("utf-8"))
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert function in functions, name


def test_no_sample_is_listed_twice() -> None:
    listed = [block for row in TABLE for block in row["blocks"]]
    assert len(listed) == len(set(listed)) > 100


@pytest.mark.skipif("TORCHPORT_GUIDE" not in os.environ, reason="TORCHPORT_GUIDE, the guide's folder, is not set")
def test_every_sample_of_the_guide_is_listed() -> None:
    found = {
        identifier(block): f"{path.name}: {' '.join(block.split())[:100]}"
        for path in sorted(Path(os.environ["TORCHPORT_GUIDE"]).glob("*.txt"))
        if not path.name.startswith(MINDTORCH)
        for block in blocks(path.read_text("utf-8"))
    }
    listed = {block for row in TABLE for block in row["blocks"]}
    assert {key: text for key, text in found.items() if key not in listed} == {}
    assert listed - found.keys() == set()
