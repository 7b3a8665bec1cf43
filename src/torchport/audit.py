"""The audit file of a redirected run: one JSON line per place of a script, of what was done to the calls there.

`torchport run --audit` writes it (`torchport.auto.log`), processes of one run share it, and `torchport convert --audit`
reads it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from pathlib import Path

VERSION = 1
BACKWARD = "(backward pass)"  # the file of what autograd's own threads do


class Kind(enum.StrEnum):
    """What happened to a call."""

    REDIRECTED = "redirected"
    FALLBACK = "fallback"
    UNSUPPORTED = "unsupported"


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One kind of thing at one place. `replacement` is the NPU's name, or for what is unsupported what to do instead;
    `bytes` is what a fallback moved to the CPU, over all `count` calls.
    """

    kind: Kind
    file: str
    line: int
    original: str
    replacement: str
    count: int
    bytes: int = 0

    def format_line(self) -> str:
        """The event as a line for people."""
        file = os.path.relpath(self.file) if self.file.startswith(os.getcwd() + os.sep) else self.file
        place = f"{file}:{self.line}" if self.line else file
        moved = f", {self.bytes / 1e6:.1f} MB moved" if self.bytes else ""
        arrow = f" -> {self.replacement}" if self.kind is Kind.REDIRECTED else f": {self.replacement}"
        return f"{place}  {self.original}{arrow if self.replacement else ''}  ({self.count}x{moved})"


def append_events(events: list[Event], path: Path, rank: int = 0) -> None:
    """Add `events` to the audit file. One write, so that lines of several processes do not mix. Raises OSError."""
    lines = [json.dumps({"audit": VERSION, "rank": rank, **dataclasses.asdict(event)}) for event in events]
    if lines:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)


def read_events(path: Path) -> list[Event]:
    """The events of an audit file. Raises OSError, and ValueError with the line for what is none."""
    events = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            if row.pop("audit") != VERSION:
                raise ValueError(f"version {VERSION} is what this torchport reads")
            row.pop("rank")
            events.append(Event(**{**row, "kind": Kind(row["kind"])}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number} is no line of an audit: {error}") from error
    return events
