"""Walk a project: which files there are, and which of them are Python."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from torchport.errors import TorchportError

PRIVATE = ".torchport"  # where torchport keeps what it needs to undo a conversion
_NOT_SOURCE = frozenset({".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", PRIVATE})
# Environments, and what earlier ports left in their default folder.
_NOT_OURS = frozenset({".venv", "venv", "node_modules", "site-packages", ".tox", ".nox", ".eggs", "torchport-out"})
INSTALLED = frozenset({"site-packages", "dist-packages"})
_MARKS = (".git", "pyproject.toml")


def require_path(root: Path) -> None:
    """Raise TorchportError unless there is something at `root`."""
    if not root.exists():
        raise TorchportError(f"there is no file or folder {root}", hint="Give the script or the folder of the project.")


def project_root(path: Path) -> Path:
    """The folder of the project that the script or folder `path` belongs to, resolved.

    The nearest folder at or above it with `.git` or `pyproject.toml`; without one the script's own folder. What is
    installed belongs to no project: a mark at or above `site-packages` or a folder of `pip install --target` does not
    count, and an installed package is a project of its own.
    """
    path = path.resolve()
    start = path if path.is_dir() else path.parent
    for folder in (start, *start.parents):
        if is_installed_place(folder):
            break
        if is_marked(folder):
            return folder
    return start


def is_marked(folder: Path) -> bool:
    """Whether the folder says itself that it is a whole project or an installed package."""
    return any((folder / mark).exists() for mark in _MARKS) or is_installed_place(folder.parent)


def display_name(path: Path, root: Path) -> str:
    """How a file is named in findings: relative to the folder that was given, with forward slashes."""
    return path.relative_to(root).as_posix() if path != root else path.name


def iter_files(root: Path, *, apart_from: Path | None = None) -> Iterator[Path]:
    """Every file and link below `root` in a fixed order, without version control and caches.

    Links are given as they are and never followed, folders that cannot be listed at the end. `apart_from` names a
    folder that is left out (an output folder inside the project). A `root` that is a file is given itself.
    """
    if not root.is_dir():
        yield root
        return
    closed: list[Path] = []
    for folder, names, leaves in os.walk(root, onerror=lambda error: closed.append(Path(error.filename))):
        here = Path(folder)
        links = [name for name in names if (here / name).is_symlink()]
        names[:] = sorted(
            name
            for name in names
            if name not in _NOT_SOURCE and name not in links and (apart_from is None or here / name != apart_from)
        )
        for leaf in sorted([*leaves, *links]):
            yield here / leaf
    yield from closed


def is_foreign(path: Path, root: Path) -> bool:
    """Whether the file belongs to an environment or a package inside the project, not to the project."""
    if path == root:
        return False
    way = path.relative_to(root)
    return not _NOT_OURS.isdisjoint(way.parts) or any(_is_filled_by_pip(root / folder) for folder in way.parents[:-1])


def find_package(path: Path) -> str:
    """The installed package that a file belongs to, by the name of its folder; "" for a file that pip has not
    installed. An editable install is none."""
    for folder in path.parents:
        if is_installed_place(folder):
            return path.relative_to(folder).parts[0].removesuffix(".py")
    return ""


def is_installed_place(folder: Path) -> bool:
    """Whether pip installs packages there: `site-packages`, or a folder of `pip install --target`."""
    return folder.name in INSTALLED or _is_filled_by_pip(folder)


@functools.cache
def _is_filled_by_pip(folder: Path) -> bool:
    """Whether pip has left its notes there, as `pip install --target` does; an editable install leaves none."""
    return next(folder.glob("*.dist-info"), None) is not None


def is_python(path: Path) -> bool:
    """Whether the file is Python source: by its suffix, or by a `#!` line that names python.

    A file without a suffix that cannot be read counts as one, so that reading it says why.
    """
    if path.suffix in (".py", ".pyw"):
        return True
    if path.suffix or path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            first = stream.readline(200)
    except OSError:
        return True
    return first.startswith(b"#!") and b"python" in first
