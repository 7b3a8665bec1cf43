"""The files of `cases/`: small projects, and what a user expects of each of their lines.

A file is a category. It reads like a patch whose result is right:

    === name: what it shows           a case; with `(runs main.py)` behind the name that script prints OK and ends
    --- train.py                      a file of the case; `[utf-16]`, `[latin-1]`, `[crlf]` ...: how it is written
      import torch                    left as it is, and no warning begins on it
    - x = torch.ones(2).cuda()        has to become
    + x = torch.ones(2).npu()         this,
    + x = torch.ones(2, device="npu") or this; behind `+!` the new line needs a warning as well
    !                                 (alone, below a line:) or stays, with a warning
    ! from apex import amp            stays, with a warning; lines with + below: or becomes one of these
    ~ m = torch.compile(m)            something is said of it, whether it is edited or not
    ? if torch.cuda.is_available():   stays, said or not
    * torch.cuda.empty_cache()        stays or is edited, said or not
    # corrected: why                  the line above was expected otherwise, against what was measured

Lines begin in the third column. A warning is a finding of the severity warning or error: information asks for nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

CASES = Path(__file__).with_name("cases")
_CASE = re.compile(r"=== (\w+)(?: \(runs ([^)]+)\))?: (.+)")
_FILE = re.compile(r"--- (\S+)(?: \[([\w-]+)\])?")
CORRECTED = "# corrected:"
KEPT, CHANGED, WARNED, SAID, EITHER, ANY = " ", "-", "!", "~", "?", "*"


class CaseError(Exception):
    """A case file that does not follow its format: the message names file and line."""


@dataclasses.dataclass(slots=True)
class Line:
    """One line of a source: what is expected, and the texts that it may become (each: whether with a warning)."""

    text: str
    marker: str
    becomes: list[tuple[str, bool]] = dataclasses.field(default_factory=list)
    or_warning: bool = False


@dataclasses.dataclass(slots=True)
class File:
    path: str
    encoding: str = "utf-8"
    end: str = "\n"
    lines: list[Line] = dataclasses.field(default_factory=list)

    def data(self) -> bytes:
        """The file as it is given to the converter."""
        return "".join(line.text + self.end for line in self.lines).encode(self.encoding)


@dataclasses.dataclass(slots=True)
class Case:
    name: str
    about: str
    category: str
    runs: tuple[str, ...] = ()  # the words of its command line behind `python`
    files: list[File] = dataclasses.field(default_factory=list)
    corrected: list[str] = dataclasses.field(default_factory=list)  # why expectations were changed, one by one

    def knows_cuda_only(self) -> bool:
        """Whether a line has to become another one: the case has no path of its own for the NPU."""
        return any(line.marker == CHANGED for file in self.files for line in file.lines)

    def write(self, folder: Path) -> None:
        """Make the project in `folder`, which exists."""
        for file in self.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data())


def load(folder: Path = CASES) -> list[Case]:
    """All cases, in the order of the files. Raises CaseError."""
    cases = [case for path in sorted(folder.glob("*.diff")) for case in read(path.read_text("utf-8"), path.stem)]
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise CaseError(f"two cases are called {sorted(twice)}")
    return cases


def read(text: str, category: str) -> Iterator[Case]:
    """The cases of one file."""
    case: Case | None = None
    file: File | None = None
    for number, row in enumerate(text.split("\n"), 1):
        where = f"{category}.diff:{number}"
        if head := _CASE.fullmatch(row):
            if case is not None:
                yield _whole(case, where)
            case, file = Case(head[1], head[3], category, tuple((head[2] or "").split())), None
        elif case is not None and (head := _FILE.fullmatch(row)):
            file = File(head[1])
            if head[2] == "crlf":
                file.end = "\r\n"
            elif head[2]:
                file.encoding = head[2]
            case.files.append(file)
        elif row:
            if case is None or file is None:
                raise CaseError(f"{where}: a line outside of a file")
            if row.startswith(CORRECTED):
                if not file.lines or not row.removeprefix(CORRECTED).strip():
                    raise CaseError(f"{where}: a correction needs a line and a reason")
                case.corrected.append(row.removeprefix(CORRECTED).strip())
            else:
                _add(file, row, where)
    if case is not None:
        yield _whole(case, f"{category}.diff")


def _add(file: File, row: str, where: str) -> None:
    marker, second, text = row[0], row[1:2] or " ", row[2:]
    if marker == "+" or row == WARNED:
        if not file.lines or file.lines[-1].marker not in (CHANGED, WARNED):
            raise CaseError(f"{where}: nothing that may become this")
        if row == WARNED:
            file.lines[-1].or_warning = True
        else:
            file.lines[-1].becomes.append((text, second == WARNED))
    elif marker not in (KEPT, CHANGED, WARNED, SAID, EITHER, ANY) or second != " ":
        raise CaseError(f"{where}: {row[:2]!r} is no marker")
    else:
        file.lines.append(Line(text, marker))


def _whole(case: Case, where: str) -> Case:
    if not case.files or (case.runs and case.runs[0] not in [file.path for file in case.files]):
        raise CaseError(f"{where}: the case before has no file, or not the one that it runs")
    for file in case.files:
        for line in file.lines:
            if line.marker == CHANGED and not line.becomes:
                raise CaseError(f"{where}: in {case.name} {line.text!r} becomes nothing")
            if any(text == line.text for text, _ in line.becomes):
                raise CaseError(f"{where}: in {case.name} {line.text!r} becomes itself")
    return case
