"""The files of an output folder: what a conversion writes there, and whether a person has changed them since.

`.torchport/written.json` keeps the fingerprint of every file that a conversion wrote. All files
are made in `.torchport/unfinished` and moved when the last is there, so that a full disk leaves what was. It is made as
`writing.json` before the first is moved, so that a conversion that was killed half-way does not look like somebody's
edits.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchport.errors import TorchportError, name_path_in_errors
from torchport.findings import Result, copy_file, hash_bytes, write_atomically
from torchport.source.project import PRIVATE

RESULT, WRITING, WRITTEN = "convert.json", "writing.json", "written.json"
UNFINISHED = "unfinished"
_LISTED = 20
_HASHED = 64 * 2**20  # bytes; a larger file, data as a rule, is known by its size and time, which a copy keeps


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """One file to be written: bytes with a mode (None: as others are made), or a copy of the file or link `source`."""

    source: Path | None = None
    content: bytes = b""
    mode: int | None = None

    def fingerprint(self) -> str:
        return hash_bytes(self.content) if self.source is None else fingerprint_file(self.source)

    def kept_mode(self, target: Path) -> Planned:
        """The same with the mode of the file `target` that it is to replace, where it has none of its own."""
        if self.source is not None or self.mode is not None or not target.is_file():
            return self
        return dataclasses.replace(self, mode=target.stat().st_mode & 0o7777)

    def write(self, target: Path) -> None:
        """Write it to `target`, which is not there, and whose folder is made. Raises OSError."""
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.source is None:
            write_atomically(target, self.content, self.mode)
        elif self.source.is_symlink():
            with name_path_in_errors(target):
                os.symlink(os.readlink(self.source), target)
        else:
            copy_file(self.source, target)


def fingerprint_file(path: Path) -> str:
    """What tells whether a file or link was changed; empty where there is none. Raises OSError."""
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    if not path.is_file():
        return ""
    status = path.stat()
    if status.st_size > _HASHED:
        return f"{status.st_size} bytes of {status.st_mtime_ns}"
    return hash_bytes(path.read_bytes())


def write_output(out: Path, plan: Mapping[str, Planned], result: Result, *, force: bool) -> None:
    """Write the planned files into the folder `out`, their fingerprints, and `result`.

    Raises TorchportError before anything is written where a file was edited or deleted since torchport wrote it, or is
    not torchport's at all; with `force` these are overwritten. Raises OSError, which names the file in `out`, for what
    cannot be written: what was in `out` is then still there, and the folder is not where it was not.
    """
    coming = {name: one.fingerprint() for name, one in plan.items()}
    if not force:
        _refuse_edited(out, coming)
    private = out / PRIVATE
    aside = private / UNFINISHED
    new = not out.exists()
    try:
        if aside.exists():  # of one that was killed
            shutil.rmtree(aside)
        aside.mkdir(parents=True)
        for name, one in plan.items():
            try:
                one.kept_mode(out / name).write(aside / name)
            except OSError as error:
                if Path(error.filename).is_relative_to(aside):
                    error.filename = str(out / name)  # the one that the caller knows
                raise
        Result("convert", data={"written": coming}).write(private / WRITING)
        for name in plan:
            with name_path_in_errors(out / name):
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(aside / name, out / name)
        result.write(private / RESULT)
        os.replace(private / WRITING, private / WRITTEN)
    except BaseException:
        shutil.rmtree(out if new else aside, ignore_errors=True)
        raise
    shutil.rmtree(aside)


def list_edited_files(out: Path) -> list[str]:
    """The files of the output folder `out` that somebody has edited or deleted since a conversion wrote them."""
    return [name for name, was in _noted(out / PRIVATE / WRITTEN).items() if fingerprint_file(out / name) != was]


def _refuse_edited(out: Path, coming: Mapping[str, str]) -> None:
    finished, begun = _noted(out / PRIVATE / WRITTEN), _noted(out / PRIVATE / WRITING)
    lost = []
    for name, new in coming.items():
        now = fingerprint_file(out / name)
        if now in {new, finished.get(name, ""), begun.get(name, "")} - {""}:
            continue
        if now:
            lost.append(f"{name} (edited)" if name in finished or name in begun else f"{name} (not torchport's)")
        elif name in finished and name not in begun:
            lost.append(f"{name} (deleted)")
    if lost:
        raise TorchportError(
            f"{out} was changed since torchport wrote it, so nothing was written: {_list(lost)}",
            hint="Give another folder, or --force to overwrite these files.",
        )


def _noted(path: Path) -> Mapping[str, str]:
    """The fingerprints that a conversion noted; none where there was no such conversion, or an older torchport's."""
    if not path.is_file():
        return {}
    written = Result.read(path).data.get("written", {})
    return written if isinstance(written, dict) else {}


def _list(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return ", ".join(every[:_LISTED]) + more
