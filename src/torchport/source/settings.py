"""What a project asks of torchport in its pyproject.toml.

[tool.torchport]
ignore = ["TP604"]              codes that are neither reported nor acted on
exclude = ["third_party/*"]     paths, from the folder of pyproject.toml, that are left as they are
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError

FILE = "pyproject.toml"
_CODE = re.compile(r"TP\d{3}")


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """`[tool.torchport]` of `folder`'s pyproject.toml."""

    folder: Path = Path()
    ignore: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()

    def leaves_out(self, path: Path) -> bool:
        """Whether a pattern of `exclude` fits the file or a folder that it lies in; `*` fits slashes too."""
        if not self.exclude or not path.resolve().is_relative_to(self.folder):
            return False
        name = path.resolve().relative_to(self.folder)
        return any(
            fnmatch.fnmatch(part.as_posix(), pattern.rstrip("/"))
            for part in (name, *name.parents)
            for pattern in self.exclude
        )


def settings_of(root: Path) -> Settings:
    """The settings of the nearest pyproject.toml at or above the file or folder `root`; without one, none.

    Raises TorchportError for a file that is not TOML, an unknown key, or a value that is not a list of strings or of
    codes.
    """
    start = root.resolve()
    for folder in (start, *start.parents):
        file = folder / FILE
        if file.is_file():
            return _read(file)
    return Settings()


def _read(file: Path) -> Settings:
    try:
        tools: Any = tomllib.loads(file.read_text("utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise TorchportError(f"{file} cannot be read as TOML: {error}") from error
    table = tools.get("torchport", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise TorchportError(f"{file}: tool.torchport is not a table")
    if unknown := set(table) - {"ignore", "exclude"}:
        raise TorchportError(
            f"{file}: [tool.torchport] has unknown keys {', '.join(sorted(unknown))}",
            hint="There are ignore and exclude.",
        )
    for key, values in table.items():
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise TorchportError(f"{file}: {key} in [tool.torchport] is not a list of strings")
    if wrong := [code for code in table.get("ignore", ()) if not _CODE.fullmatch(code)]:
        raise TorchportError(
            f"{file}: {', '.join(wrong)} in [tool.torchport] is no code", hint='Codes look like "TP101".'
        )
    return Settings(file.parent, frozenset(table.get("ignore", ())), tuple(table.get("exclude", ())))
