"""Modules of the user's that a run imported, that speak of CUDA, and that were not converted."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import torchport
from torchport.convert import convert_source
from torchport.convert.inspection import LARGEST
from torchport.convert.residue import Meaning, find_residue
from torchport.findings import Finding
from torchport.results.port import UnconvertedModule
from torchport.source.project import find_package

_OWN = Path(torchport.__file__).resolve().parent


def find_unconverted(files: Iterable[Path], converted: set[Path]) -> list[UnconvertedModule]:
    """Those of the imported `files` that are the user's, not in `converted`, and speak of CUDA; by path.

    Not the user's are Python's own library, what lies in `site-packages`, `dist-packages` or a folder that pip has
    filled (`pip install --target`), and torchport. An editable install lies elsewhere, so it is the user's. Comments,
    docstrings and messages are no mention. Files that are not there or not Python are left out; the rest is read,
    never imported or executed.
    """
    known = {path.resolve() for path in converted}
    found = []
    for path in sorted({path.resolve() for path in files}):
        if path.suffix == ".py" and path not in known and path.is_file() and _is_users(path):
            mention = _mention(path)
            if mention is not None:
                found.append(mention)
    return found


def _mention(path: Path) -> UnconvertedModule | None:
    try:
        if path.stat().st_size > LARGEST:
            return None
        data = path.read_bytes()
    except OSError:
        return None  # it was imported and is gone or closed since: nothing can be said of it
    conversion = convert_source(data, path.name)
    changing = [finding for finding in conversion.findings if finding.fix and finding.code != "TP001"]
    if conversion.edits and changing:
        first = min(changing, key=_line)
        return UnconvertedModule(str(path), _line(first), first.message, changes=True)
    for word in find_residue(data, path.name, conversion.findings):
        if word.meaning is not Meaning.PROSE:
            return UnconvertedModule(str(path), word.line, f"it names {word.word}", changes=False)
    return None


def _line(finding: Finding) -> int:
    return finding.location.line if finding.location is not None else 1


def _is_users(path: Path) -> bool:
    if path.is_relative_to(_OWN) or any(path.is_relative_to(folder) for folder in _standard_library()):
        return False
    return not find_package(path)


@functools.cache
def _standard_library() -> tuple[Path, ...]:
    return tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})
