"""Finding and Result: the two types that every package uses.

A step of torchport takes files and gives a `Result`: findings for people, data for the next step, and the hashes
of what it read, so that a later step can tell whether the file still describes the same inputs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

from torchport import __version__
from torchport.errors import TorchportError, name_path_in_errors
from torchport.results import codec

FORMAT = "torchport-result"
# 1: first version.
VERSION = 1
_T = TypeVar("_T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # PEP 696, in typing since Python 3.13

    _Data = TypeVarWithDefault("_Data", default=Mapping[str, Any], covariant=True)
else:
    _Data = TypeVar("_Data", covariant=True)


class Severity(enum.StrEnum):
    """How much a finding matters to someone who wants the script to train on an NPU."""

    ERROR = "error"  # it will not run, or it computes something else
    WARNING = "warning"  # it may not run, or a person has to decide
    INFO = "info"  # good to know: done, harmless, or advice


class Safety(enum.StrEnum):
    """What may be done with the fix of a finding."""

    SAFE = "safe"  # proven: applied without asking
    REVIEW = "review"  # applied, and a person should look at it
    REPORT = "report"  # never applied by us; there may be no fix at all


class _Sent:
    """What processes send each other in thousands: what dataclasses pickle by asks for each field by its name, and
    takes three times as long."""

    __slots__ = ()

    def __reduce__(self) -> str | tuple[Any, ...]:
        return type(self), _values(type(self))(self)  # type: ignore[arg-type]  # classes have hashes


@functools.cache
def _values(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    return operator.attrgetter(*(field.name for field in dataclasses.fields(kind)))


@dataclasses.dataclass(frozen=True, slots=True)
class Location(_Sent):
    """A range in a text file. Lines and columns count from 1, columns in characters; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclasses.dataclass(frozen=True, slots=True)
class Edit(_Sent):
    """Replace the bytes [start, end) of the original file. `start == end` inserts."""

    start: int
    end: int
    replacement: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Finding(_Sent):
    """One thing that torchport has to say.

    `code` names the rule (`TP101`), `evidence` holds what it saw as plain JSON values, `fix` the edits that would
    settle it (empty: none is known), `links` where to read more. `location` is None for what has no place in a file,
    such as a diverging tensor.
    """

    code: str
    severity: Severity
    safety: Safety
    location: Location | None
    message: str
    hint: str = ""
    evidence: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fix: tuple[Edit, ...] = ()
    links: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values; the bytes of its edits as latin-1 text, which is lossless for any encoding."""
        value = {field: getattr(self, field) for field in self.__slots__}
        if self.location is not None:
            value["location"] = {field: getattr(self.location, field) for field in self.location.__slots__}
        value["evidence"] = dict(self.evidence)
        value["fix"] = [[edit.start, edit.end, edit.replacement.decode("latin-1")] for edit in self.fix]
        value["links"] = list(self.links)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Finding:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for what is not a finding."""
        location = value["location"]
        return cls(
            code=_be(str, value["code"]),
            severity=Severity(value["severity"]),
            safety=Safety(value["safety"]),
            location=None if location is None else Location(**location),
            message=_be(str, value["message"]),
            hint=_be(str, value["hint"]),
            evidence=_be(dict, value["evidence"]),
            fix=tuple(Edit(start, end, text.encode("latin-1")) for start, end, text in value["fix"]),
            links=tuple(value["links"]),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Result(Generic[_Data]):
    """The result of one command or step.

    `inputs` maps each file that was read to its sha256. `data` is for the next step and for reports: a dataclass of
    `torchport.results`, or JSON values. Floats that are not finite are stored as the strings "nan", "inf" and "-inf",
    which `float()` reads back.
    """

    command: str
    findings: tuple[Finding, ...] = ()
    data: _Data = dataclasses.field(default_factory=dict)  # type: ignore[assignment]  # a mapping unless told otherwise
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values, with the format's name and version."""
        return self._with([codec.to_json(finding.to_json()) for finding in self.findings])

    def _with(self, findings: list[Any]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "tool": __version__,
            "command": self.command,
            "findings": findings,
            "data": codec.to_json(self.data),
            "inputs": dict(self.inputs),
        }

    def text(self) -> str:
        """The JSON text that `write` stores and that `--json` prints."""
        # A finding a line, by json's own encoder: with an indent it is Python, and 50,000 findings take 5 s.
        findings = [_line(finding.to_json()) for finding in self.findings]
        text = json.dumps(self._with([]), indent=1, ensure_ascii=True, allow_nan=False)
        listed = ",\n  ".join(findings)
        return text.replace('"findings": []', f'"findings": [\n  {listed}\n ]', 1 if findings else 0) + "\n"

    def write(self, path: str | Path) -> None:
        """Store the result at `path`. Readers see the old file or the whole new one, never a part of it."""
        write_atomically(Path(path), self.text().encode("ascii"))

    def typed(self, kind: type[_T]) -> Result[_T]:
        """The result with its JSON values as an object of the dataclass `kind`. Raises TypeError if they do not fit."""
        return Result(self.command, self.findings, codec.from_json(kind, self.data), self.inputs)

    @staticmethod
    def read(path: str | Path) -> Result:
        """Read what `write` stored. Raises TorchportError for a missing, foreign, newer or damaged file."""
        try:
            value = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise TorchportError(
                f"cannot read the result {path}: {error.strerror}", hint="Run the step that makes it first."
            ) from error
        except ValueError as error:
            raise TorchportError(
                f"{path} is not a torchport result: it is not JSON ({error})", hint="Run the step again."
            ) from error
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise TorchportError(f"{path} is not a torchport result: it does not say format {FORMAT!r}")
        if value.get("version") != VERSION:
            raise TorchportError(
                f"{path} has format version {value.get('version')!r}; this torchport reads version {VERSION}",
                hint=f"It was written by torchport {value.get('tool')}: use that one, or run the step again.",
            )
        try:
            return Result(
                command=_be(str, value["command"]),
                findings=tuple(Finding.from_json(finding) for finding in value["findings"]),
                data=_be(dict, value["data"]),
                inputs=_be(dict, value["inputs"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TorchportError(
                f"{path} is a damaged torchport result: {error!r}", hint="Run the step again."
            ) from error


def _be(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value


def hash_bytes(data: bytes) -> str:
    """The sha256 of `data` in hexadecimal: how `Result.inputs` names a file's content."""
    import hashlib  # as tempfile and shutil below: together 9 of the 50 ms that importing the recorder may take

    return hashlib.sha256(data).hexdigest()


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write `data` to `path` by way of a file beside it that is renamed into place.

    An interrupted or failing write leaves the old file whole. `mode` sets the permission bits; None keeps those of
    the file that is replaced, or what the umask gives a new one. Raises OSError.
    """
    with opened_atomically(path, mode) as stream:
        stream.write(data)


@contextlib.contextmanager
def opened_atomically(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """As `write_atomically`, for what is written piece by piece: the file takes its place when the block has ended, and
    is removed where the block raises."""
    import tempfile

    if mode is None:
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
    with name_path_in_errors(path):
        descriptor, aside = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(aside, mode)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise


def copy_file(source: Path, target: Path) -> None:
    """Copy content, permissions and times. Raises OSError, which names the one that cannot be read or written."""
    import shutil

    with open(source, "rb"):
        pass
    with name_path_in_errors(target):
        shutil.copy2(source, target)


def _umask() -> int:
    value = os.umask(0o022)
    os.umask(value)
    return value


_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def _line(value: dict[str, Any]) -> str:
    try:
        return _encode(value)
    except (TypeError, ValueError):  # its evidence has more than JSON values, which few have
        return _encode(codec.to_json(value))
