"""One line of the doctor's report, and what the checks know of the machine."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from torchport import vnpu
from torchport.errors import TorchportError
from torchport.vnpu.backend import HOME


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One line: `fix` says what to do, with the command, when not `passed`. Where it does not keep anything from
    running, it is `advice`, and the machine is healthy all the same."""

    name: str
    passed: bool
    detail: str
    fix: str = ""
    advice: bool = False

    @property
    def stops(self) -> bool:
        """Whether training on an NPU does not work because of it."""
        return not self.passed and not self.advice


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it has been deleted
        return None


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where the checks look: the variables of this process and the file system, below `root` in tests.

    `working_folder` is None if it is gone. `path` is `sys.path`, with or without the working folder.
    """

    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")
    working_folder: Path | None = dataclasses.field(default_factory=_working_folder)
    path: tuple[str, ...] = dataclasses.field(default_factory=lambda: tuple(sys.path))

    def resolve_path(self, name: str) -> Path:
        """An absolute path, below `root`."""
        return self.root / name.lstrip("/")

    def read_file_text(self, name: str) -> str:
        """What the file `name` says; "" where it cannot be read."""
        try:
            return self.resolve_path(name).read_text("utf-8", "replace")
        except OSError:
            return ""

    @functools.cached_property
    def backend(self) -> vnpu.Backend | TorchportError:
        """What torchport will use, or why that cannot be said."""
        try:
            return vnpu.detect()
        except TorchportError as error:
            return error

    @property
    def kind(self) -> vnpu.Kind:
        """The kind of the backend; none where it cannot be said."""
        return vnpu.Kind.NONE if isinstance(self.backend, TorchportError) else self.backend.kind

    @property
    def cann(self) -> Path | None:
        """The folder of a CANN that is not the virtual NPU's; None where no variable or usual place has one."""
        named = self.environ.get("ASCEND_HOME_PATH", "")
        if named and Path(named) != HOME:
            return Path(named)
        for place in ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann"):
            if self.resolve_path(place).is_dir():
                return self.resolve_path(place)
        return None
