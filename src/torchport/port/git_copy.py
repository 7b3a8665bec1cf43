"""A repository of its own for a mirrored folder: scripts that ask git for a hash get it, none writes into the user's.

The copy has the refs, the index and the configuration; its objects are the user's through
`objects/info/alternates`, into which git never writes.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from torchport.findings import copy_file

OWN = ("HEAD", "index")  # of a work tree
SHARED = ("config", "packed-refs", "shallow")  # of the repository it belongs to
MOST_REFS = 2000
# Submodules and work trees say where their files are: not where the mirror is.
WORKTREE = re.compile(r"^\s*worktree\s*=.*\n?", re.MULTILINE)


def copy_repository(source: str, target: str) -> None:
    """Make the folder `target` for the `.git` at `source`, a folder or (in work trees and submodules) a file.

    What is no repository, or cannot be read, is left out: git then says that there is none. Raises OSError
    where `target` cannot be written.
    """
    try:
        own = Path(source)
        if own.is_file():
            text = own.read_text(encoding="utf-8", errors="surrogateescape")
            own = own.parent / text.removeprefix("gitdir:").strip()
        shared = own
        if (own / "commondir").is_file():
            shared = own / (own / "commondir").read_text(encoding="utf-8", errors="surrogateescape").strip()
        if not (own / "HEAD").is_file() or not (shared / "objects").is_dir():
            return
    except OSError:
        return
    place = Path(target)
    (place / "objects" / "info").mkdir(parents=True)
    (place / "refs").mkdir()
    objects = os.fsencode(os.path.realpath(shared / "objects"))
    (place / "objects" / "info" / "alternates").write_bytes(objects + b"\n")
    for name, folder in [*((name, own) for name in OWN), *((name, shared) for name in SHARED)]:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            copy_file(folder / name, place / name)
    if (place / "config").exists():
        config = (place / "config").read_text(encoding="utf-8", errors="surrogateescape")
        (place / "config").write_text(WORKTREE.sub("", config), encoding="utf-8", errors="surrogateescape")
    _copy_refs(shared / "refs", place / "refs")


def _copy_refs(source: Path, target: Path) -> None:
    count = 0
    for folder, _, names in os.walk(source):
        place = target / Path(folder).relative_to(source)
        place.mkdir(exist_ok=True)
        for name in names:
            count += 1
            if count > MOST_REFS:
                return  # HEAD's is in packed-refs in such a repository, or git says that it is missing
            with contextlib.suppress(FileNotFoundError, PermissionError):
                copy_file(Path(folder, name), place / name)
