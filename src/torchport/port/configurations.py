"""The configuration files that a command or its sources name: they are converted with the script."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

from torchport.convert import convert_source
from torchport.convert.inspection import LARGEST
from torchport.port.modules import parse_file
from torchport.results.port import UnconvertedModule
from torchport.source.kinds import Kind, kind_of
from torchport.source.project import is_foreign, iter_files

_KINDS = frozenset({Kind.YAML, Kind.JSON, Kind.SETTINGS})
MOST = 1000  # files: a folder of data may have millions
_PATH = re.compile(r"[^\n\0]{1,200}")


def find_configurations(sources: Sequence[Path], arguments: Iterable[str], folder: Path, root: Path) -> list[Path]:
    """The configuration files below `root` or `folder`, the current folder, that conversion changes; resolved.

    A file is named by an argument (`--config=base.yaml`), or by a string of one of the `sources`: relative to `folder`,
    to the source's own folder, or to a folder there that another string names (`os.path.join("configs", "base.yaml")`).
    With hydra, all files of its folder (`config_path`) are.
    """
    found: dict[Path, None] = {}
    for path in (
        *_of_arguments(arguments, folder),
        *(each for source in sources for each in _of_source(source, folder)),
    ):
        path = Path(os.path.realpath(path))
        place = next((place for place in (root, folder.resolve()) if path.is_relative_to(place)), None)
        if place is not None and not is_foreign(path, place) and path not in found and _changes(path):
            found[path] = None
    return list(found)


def list_unconverted(root: Path, converted: Container[Path], apart_from: Path) -> Iterator[UnconvertedModule]:
    """The configuration files at or below `root`, among the first `MOST`, that conversion would change and that are not
    among the `converted`, each with the first line that would change."""
    found = (path for path in iter_files(root, apart_from=apart_from) if kind_of(path.name) in _KINDS)
    for path in itertools.islice(found, MOST):
        if path.resolve() not in converted and not is_foreign(path, root) and _changes(path):
            first = next(one for one in convert_source(path.read_bytes(), path.name).findings if one.fix)
            yield UnconvertedModule(str(path), first.location.line if first.location else 1, first.message)


def _of_arguments(arguments: Iterable[str], folder: Path) -> Iterator[Path]:
    for word in arguments:
        for name in {word, word.rpartition("=")[2]}:
            if _is_configuration(name):
                yield folder / name


def _of_source(source: Path, folder: Path) -> Iterator[Path]:
    tree = parse_file(source)
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    paths = sorted(text for text in texts if _PATH.fullmatch(text))
    files = [text for text in paths if _is_configuration(text)]
    bases = list(dict.fromkeys((folder, source.parent)))
    if files:
        # Unlike Path.is_dir, this answers for a text that no file system takes as a name.
        bases += [base / text for base in bases for text in paths if os.path.isdir(base / text)]
        yield from (base / text for base in bases for text in files)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("hydra."):
            for word in call.keywords:
                if word.arg == "config_path" and isinstance(word.value, ast.Constant) and word.value.value:
                    yield from sorted((source.parent / str(word.value.value)).rglob("*.yaml"))


def _is_configuration(name: str) -> bool:
    return _PATH.fullmatch(name) is not None and kind_of(name) in _KINDS


def _changes(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return False
        return bool(convert_source(path.read_bytes(), path.name).edits)
    except OSError:
        return False  # the runs say that it cannot be read
