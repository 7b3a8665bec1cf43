"""Convert in place, and take it back.

Before the first file is touched, a journal with the way back for every file is written to `.torchport/`; so a
conversion that a crash ended can be taken back like a finished one. Ctrl-C and a full disk take it back by themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchport.convert.stages import Extras
from torchport.convert.tree import convert_project, result_of
from torchport.errors import TorchportError
from torchport.findings import Edit, Result, hash_bytes, write_atomically
from torchport.rules import Style
from torchport.source.edits import invert_edits, splice
from torchport.source.project import PRIVATE, require_path


def write_tree(source: Path, style: Style = Style.NPU, extras: Extras | None = None) -> Result:
    """Convert the file or folder `source` in place. Raises TorchportError where it cannot be written."""
    require_path(source)
    converted = convert_project(source, style, extras)
    back = {
        one.name: {
            "before": one.digest,
            "after": hash_bytes(one.output),
            "edits": [
                [edit.start, edit.end, edit.replacement.decode("latin-1")] for edit in invert_edits(one.data, one.edits)
            ],
        }
        for one in converted
        if one.changed
    }
    result = result_of(source, style, converted, undo=back)
    if not back:
        return result
    folder = _folder(source)
    journal = folder / f"write-{_last(folder) + 1}.json"
    try:
        folder.mkdir(exist_ok=True)
        result.write(journal)
        for one in converted:
            if one.changed:
                write_atomically(one.path, one.output)
    except (OSError, KeyboardInterrupt) as error:
        hint = _take_back(source, journal)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise TorchportError(f"cannot write {error.filename}: {error.strerror}", hint=hint) from error
    return result


def _take_back(source: Path, journal: Path) -> str:
    """Leave no project half converted; what is to be said of it."""
    try:
        if journal.exists():
            undo_tree(source)
        _remove_if_empty(journal.parent)
    except OSError:
        return "`torchport convert --undo` takes back what was written."
    return "The project is as it was."


def undo_tree(source: Path) -> list[str]:
    """Take back the last conversion in place; the names of the files that were restored.

    All or nothing: raises TorchportError where there is nothing to take back, or where a file was changed since.
    """
    require_path(source)
    folder = _folder(source)
    number = _last(folder)
    if number == 0:
        raise TorchportError(
            f"there is no conversion to take back in {folder.parent}", hint="Give the path that was given to --write."
        )
    journal = folder / f"write-{number}.json"
    steps: dict[str, Any] = Result.read(journal).data["undo"]
    restored: dict[Path, bytes] = {}
    changed_since = []
    for name, step in steps.items():
        path = folder.parent / name
        data = path.read_bytes() if path.is_file() else b""
        if hash_bytes(data) == step["after"]:
            edits = [Edit(start, end, text.encode("latin-1")) for start, end, text in step["edits"]]
            restored[path] = splice(data, edits)
        elif hash_bytes(data) != step["before"]:
            changed_since.append(name)
    if changed_since:
        raise TorchportError(
            f"{', '.join(changed_since)} changed since the conversion, so nothing was taken back",
            hint=f"Undo those changes first, or take over what you want from the diff in {journal}.",
        )
    for path, data in restored.items():
        write_atomically(path, data)
    journal.unlink()
    _remove_if_empty(folder)
    return [path.relative_to(folder.parent).as_posix() for path in restored]


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _folder(source: Path) -> Path:
    return (source if source.is_dir() else source.parent) / PRIVATE


def _last(folder: Path) -> int:
    numbers = [int(path.stem.removeprefix("write-")) for path in folder.glob("write-*.json")]
    return max(numbers, default=0)
