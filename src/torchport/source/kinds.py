"""What kind of file a path is, by its name."""

from __future__ import annotations

import enum
import re
from pathlib import PurePath


class Kind(enum.Enum):
    """The kinds of files that rules look at."""

    PYTHON = enum.auto()
    NOTEBOOK = enum.auto()
    SHELL = enum.auto()
    DOCKER = enum.auto()
    YAML = enum.auto()
    JSON = enum.auto()
    SETTINGS = enum.auto()  # toml, ini, env, gin
    PACKAGES = enum.auto()  # requirements, conda environments
    CUDA_SOURCE = enum.auto()
    CPP_SOURCE = enum.auto()  # no headers: projects bring those of whole libraries along


_SUFFIXES = {
    ".py": Kind.PYTHON,
    ".pyw": Kind.PYTHON,
    ".ipynb": Kind.NOTEBOOK,
    ".sh": Kind.SHELL,
    ".bash": Kind.SHELL,
    ".zsh": Kind.SHELL,
    ".slurm": Kind.SHELL,
    ".sbatch": Kind.SHELL,
    ".pbs": Kind.SHELL,
    ".mk": Kind.SHELL,  # recipes are lines for a shell, and variables are set and read nearly as there
    ".dockerfile": Kind.DOCKER,
    ".yaml": Kind.YAML,
    ".yml": Kind.YAML,
    ".json": Kind.JSON,
    ".toml": Kind.SETTINGS,
    ".ini": Kind.SETTINGS,
    ".cfg": Kind.SETTINGS,
    ".env": Kind.SETTINGS,
    ".gin": Kind.SETTINGS,
    ".cu": Kind.CUDA_SOURCE,
    ".cuh": Kind.CUDA_SOURCE,
    **dict.fromkeys((".cpp", ".cc", ".cxx"), Kind.CPP_SOURCE),
}
_SETTINGS_NAMES = frozenset({".env", "Pipfile"})
_MAKEFILES = frozenset({"Makefile", "makefile", "GNUmakefile"})
_REQUIREMENTS = re.compile(
    r"(?:.*[-_.])?(?:requirements|requires|reqs?)(?:[-_.\d].*)?\.(?:txt|in|pip)|(?:.*[-_.])?constraints.*\.txt"
    r"|conda.*\.ya?ml|environment.*\.ya?ml"
)
# A folder of lists: requirements/gpu.txt, requirements/ci/base.in
_OF_REQUIREMENTS = re.compile(r"(?:.*[-_.])?(?:requirements|requires|reqs)(?:[-_.]\w+)?")


def kind_of(path: str) -> Kind | None:
    """The kind of a file, None for one that no rule looks at. Files without a suffix are not judged by name."""
    name, suffix = PurePath(path).name, PurePath(path).suffix.lower()
    if _REQUIREMENTS.fullmatch(name.lower()):
        return Kind.PACKAGES
    folders = PurePath(path).parts[:-1] if suffix in (".txt", ".in") else ()
    if any(_OF_REQUIREMENTS.fullmatch(folder.lower()) for folder in folders):
        return Kind.PACKAGES
    if name.startswith(("Dockerfile", "Containerfile")) or name in ("dockerfile", "containerfile"):
        return Kind.DOCKER
    if name in _MAKEFILES or name.startswith("Makefile."):
        return Kind.SHELL
    if name in _SETTINGS_NAMES:
        return Kind.SETTINGS
    return _SUFFIXES.get(suffix)


_COMMENTS = {
    Kind.SETTINGS: re.compile(r"\s*[#;]"),
    Kind.JSON: re.compile(r"\s*(?:#|//)"),
    Kind.CUDA_SOURCE: re.compile(r"\s*(?://|/?\*)"),
    Kind.CPP_SOURCE: re.compile(r"\s*(?://|/?\*)"),
}
_HASH = re.compile(r"\s*#(?!SBATCH)")  # Slurm reads its directives in comments


def is_comment(line: str, kind: Kind) -> bool:
    """Whether a line of a file that is not Python is a comment as a whole."""
    return _COMMENTS.get(kind, _HASH).match(line) is not None
