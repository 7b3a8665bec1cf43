"""The options that a script defines, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

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


def imported_beside(source: bytes, folder: Path) -> list[Path]:
    """The Python files in `folder`, a script's own, that the import statements of the text `source` name.

    Scripts keep their options in a module of their own (`from options import get_args`). Not looked into further.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level < 2:
            module = [node.module] if node.module else []
            names.update((".".join([*module, alias.name]), None) for alias in node.names)
            names.update((name, None) for name in module)
    places = [folder.joinpath(*name.split(".")) for name in names]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return [file for file in files if file.is_file()]


def _options(call: ast.Call) -> Iterator[str]:
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    texts = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
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
