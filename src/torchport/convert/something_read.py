"""Refuse to answer for what was not read: an empty folder, one without Python, a damaged notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchport.convert.workers import Converted
from torchport.errors import TorchportError
from torchport.findings import Finding, Severity
from torchport.source.kinds import Kind, kind_of
from torchport.source.notebook import RENEW, Notebook
from torchport.source.project import is_python, iter_files
from torchport.source.settings import settings_of
from torchport.source.text import SourceError

_UNPARSED = ("TP901", "TP902")
_GIVE = "Give the script or the folder of the project."


def require_something_read(root: Path, converted: Sequence[Converted], apart_from: Path | None = None) -> None:
    """Raise TorchportError where `converted`, all that was looked at in the file or folder `root`, holds no code and
    nothing else that there is something to say about: "nothing in the way" would be true of nothing.

    A named file that is no Python but known to a rule (a shell script, a requirement list) counts as read. So does a
    Python file that cannot be parsed: its finding says where.
    """
    said = [finding for one in converted for finding in one.findings if not _is_of_damaged_notebook(finding)]
    if said or any(_has_code(one) for one in converted):
        return
    settings = settings_of(root)
    if not root.is_dir():
        if settings.leaves_out(root):
            return  # somebody has asked for it, as below
        if converted and kind_of(root.name) not in (None, Kind.PYTHON, Kind.NOTEBOOK):
            return
        why = _why_nothing(converted[0]) if converted else "it is no Python, and no file that a rule is for"
        raise _nothing(f"{root}: {why}", why)
    code = [one for one in converted if _is_code(one)]
    if code:
        why = _why_nothing(code[0])
        more = f", and {len(code) - 1} more like it" if len(code) > 1 else ""
        raise _nothing(f"there is no code to read in {root}: {code[0].name}: {why}{more}", why)
    if not any(path.is_file() for path in iter_files(root, apart_from=apart_from)):
        raise _nothing(f"the folder {root} is empty")
    left = [path for path in iter_files(root, apart_from=apart_from) if is_python(path) or path.suffix == ".ipynb"]
    if any(settings.leaves_out(path) for path in left):
        return
    if left:
        raise TorchportError(
            f"none of the Python files in {root} was read, as {left[0].relative_to(root)}: they are links, or belong "
            "to an environment",
            hint=_GIVE,
        )
    raise _nothing(f"there is no Python in the folder {root}")


def _nothing(message: str, why: str = "") -> TorchportError:
    return TorchportError(message, hint=RENEW if why.endswith("no cells") else _GIVE)


def _is_of_damaged_notebook(finding: Finding) -> bool:
    where = finding.location
    unparsed = finding.code in _UNPARSED and finding.severity is not Severity.INFO  # a note is on some of its cells
    return unparsed and where is not None and kind_of(where.path) is Kind.NOTEBOOK


def _is_code(one: Converted) -> bool:
    return kind_of(one.name) in (Kind.PYTHON, Kind.NOTEBOOK) or is_python(one.path)


def _has_code(one: Converted) -> bool:
    return _is_code(one) and not _why_nothing(one)


def _why_nothing(one: Converted) -> str:
    """Why there was no code in a file of code; empty for code."""
    damage = next((finding.message for finding in one.findings if _is_of_damaged_notebook(finding)), "")
    if damage:
        return damage
    data = one.data or one.path.read_bytes()
    if kind_of(one.name) is not Kind.NOTEBOOK:
        return "" if data.strip() else "the file is empty"
    try:
        notebook = Notebook(one.name, data)
    except (SourceError, RecursionError, MemoryError) as error:
        return str(error)
    return "" if notebook.code.strip() or notebook.shell.strip() else "the notebook has no Python"
