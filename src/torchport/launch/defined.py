"""The options that a script defines, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# argparse and optparse; click and typer, whose names differ in the first letter.
_DEFINING = {"add_argument", "add_option", "option", "Option"}
_PARSERS = {"ArgumentParser", "OptionParser"}
_ABSL = "DEFINE_"


def defined_options(source: bytes) -> frozenset[str]:
    """The options (`--epochs`, `-e`) that a Python text defines with argparse, optparse, click, typer or absl.

    Nothing is run, so options with computed names are not found. A text that is not Python has none.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    return frozenset(name for node in ast.walk(tree) if isinstance(node, ast.Call) for name in _options(node))


def _options(call: ast.Call) -> Iterator[str]:
    function = call.func
    name = (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else ""
    )
    texts = [
        part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    if name in _DEFINING:
        for text in texts:
            # click has `--shout/--no-shout` and `-s/-S` in one text.
            yield from (part.strip() for part in text.split("/") if part.strip().startswith("-"))
    elif name in _PARSERS:
        without = any(
            word.arg == "add_help" and isinstance(word.value, ast.Constant) and word.value.value is False
            for word in call.keywords
        )
        yield from () if without else ("-h", "--help")
    elif name.startswith(_ABSL) and texts:
        yield f"--{texts[0]}"
