"""What was done to a script's calls, by place: redirected, fallen back to the CPU, not possible.

A place is a code object and the offset of the call in it, which costs nothing to look at; files, lines and source
text are worked out when the process ends. Then one JSON line per place is appended to the audit file
(`TORCHPORT_AUDIT`), which processes of one run share, and a short summary goes to stderr.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import linecache
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from torchport.auto.views import script_frame

VERSION = 1  # of the lines in an audit file
SHOWN = 6  # places of each kind in the summary
BACKWARD = "(backward pass)"  # the place of what autograd's own threads do


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

    def text(self) -> str:
        """The event as a line for people."""
        file = os.path.relpath(self.file) if self.file.startswith(os.getcwd() + os.sep) else self.file
        place = f"{file}:{self.line}" if self.line else file
        moved = f", {self.bytes / 1e6:.1f} MB moved" if self.bytes else ""
        arrow = f" -> {self.replacement}" if self.kind is Kind.REDIRECTED else f": {self.replacement}"
        return f"{place}  {self.original}{arrow if self.replacement else ''}  ({self.count}x{moved})"


_Place = tuple[Kind, CodeType | None, int, str, str]


class Log:
    """The events of this process. Counting from several threads at once may lose a count, never a place."""

    def __init__(self) -> None:
        self._counts: dict[_Place, int] = {}
        self._bytes: dict[_Place, int] = {}
        self._folder = os.getcwd()

    def redirected(self, original: str, replacement: str) -> None:
        """Count a call of `original` that the nearest script frame above makes."""
        frame = script_frame(sys._getframe(1).f_back)
        if frame is None:
            return
        place = (Kind.REDIRECTED, frame.f_code, frame.f_lasti, original, replacement)
        self._counts[place] = self._counts.get(place, 0) + 1

    def unsupported(self, original: str, instead: str) -> None:
        """Count a call of something that there is no way to do."""
        self._count(Kind.UNSUPPORTED, original, instead)

    def fallback(self, original: str, moved: int) -> None:
        """Count an operator that ran on the CPU. `original` is "" where the source text at the place names it."""
        self._bytes_of(self._count(Kind.FALLBACK, original, ""), moved)

    def _count(self, kind: Kind, original: str, replacement: str) -> _Place:
        frame = script_frame(sys._getframe(1).f_back)
        code, offset = (None, 0) if frame is None else (frame.f_code, frame.f_lasti)
        place = (kind, code, offset, original, replacement)
        self._counts[place] = self._counts.get(place, 0) + 1
        return place

    def _bytes_of(self, place: _Place, moved: int) -> None:
        self._bytes[place] = self._bytes.get(place, 0) + moved

    def clear(self) -> None:
        """Forget everything: a forked child begins with nothing of its parent's."""
        self._counts.clear()
        self._bytes.clear()

    def events(self) -> list[Event]:
        """Everything so far by kind, file and line; places that differ only in the offset on a line are one."""
        merged: dict[tuple[Kind, str, int, str, str], list[int]] = {}
        for place, count in list(self._counts.items()):
            kind, code, offset, original, replacement = place
            file, line = self._position(code, offset)
            name = original or _call_text(code, offset)
            row = merged.setdefault((kind, file, line, name, replacement), [0, 0])
            row[0] += count
            row[1] += self._bytes.get(place, 0)
        order = list(Kind)
        keys = sorted(merged, key=lambda key: (order.index(key[0]), *key[1:]))
        return [Event(*key, *merged[key]) for key in keys]

    def _position(self, code: CodeType | None, offset: int) -> tuple[str, int]:
        if code is None:
            return BACKWARD, 0
        line = _positions(code, offset)[0] or code.co_firstlineno
        name = code.co_filename
        return (name if name.startswith("<") else os.path.join(self._folder, name)), line


def append(events: list[Event], path: Path) -> None:
    """Add `events` to the audit file. One write, so that lines of several processes do not mix. Raises OSError."""
    rank = os.environ.get("RANK")
    lines = [
        json.dumps({"audit": VERSION, **({"rank": int(rank)} if rank else {}), **dataclasses.asdict(event)})
        for event in events
    ]
    if lines:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)


def read(path: Path) -> list[Event]:
    """The events of an audit file. Raises OSError, and ValueError with the line for what is none."""
    events = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            if row.pop("audit") != VERSION:
                raise ValueError(f"version {VERSION} is what this torchport reads")
            row.pop("rank", None)
            events.append(Event(**{**row, "kind": Kind(row["kind"])}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number} is no line of an audit: {error}") from error
    return events


def summary(events: list[Event], audit: str) -> Iterator[str]:
    """Lines for stderr; none where there is nothing to say. `audit` is the file with all places, if there is one."""
    titles = {
        Kind.REDIRECTED: "redirected to the NPU",
        Kind.FALLBACK: "ran on the CPU, as the NPU lacks the operator",
        Kind.UNSUPPORTED: "could not be done as on CUDA",
    }
    for kind, title in titles.items():
        rows = sorted((event for event in events if event.kind is kind), key=lambda event: -event.count)
        if rows:
            yield f"torchport: {title}: {sum(row.count for row in rows)} calls at {len(rows)} places"
            yield from (f"  {row.text()}" for row in rows[:SHOWN])
            if len(rows) > SHOWN:
                yield (
                    f"  ... and {len(rows) - SHOWN} more: see {audit}"
                    if audit
                    else (f"  ... and {len(rows) - SHOWN} more: `--audit FILE` lists all")
                )


def _positions(code: CodeType, offset: int) -> tuple[int | None, int | None, int | None, int | None]:
    for index, position in enumerate(code.co_positions()):
        if index == offset // 2:  # an instruction has two bytes
            return position
    return None, None, None, None


def _call_text(code: CodeType | None, offset: int) -> str:
    """The source of the expression at a place, on one line."""
    if code is None:
        return ""
    first, last, begin, end = _positions(code, offset)
    if first is None or last is None or begin is None or end is None:
        return code.co_name
    lines = [linecache.getline(code.co_filename, number) for number in range(first, last + 1)]
    if not all(lines):
        return code.co_name
    data = [line.encode() for line in lines]  # columns count bytes
    data[-1] = data[-1][:end]
    data[0] = data[0][begin:]
    text = " ".join(b"".join(data).decode("utf-8", "replace").split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def count_fallbacks(torch: Any, log: Log) -> Any:
    """Count operators that torch_npu runs on the CPU; `_destroy()` of what is returned ends it.

    torch_npu's fallback is ATen's own, which moves all arguments with `aten::_to_cpu`, and nothing else uses that: a
    kernel for it sees each fallback, and costs nothing otherwise. It does not learn the operator's name.
    """

    def to_cpu(tensors: list[Any]) -> list[Any]:
        node = torch._C._current_autograd_node()
        name = node.name() if node is not None and script_frame(sys._getframe().f_back) is None else ""
        log.fallback(name, sum(tensor.nbytes for tensor in tensors if tensor.device.type != "cpu"))
        return [tensor.cpu() for tensor in tensors]

    library = torch.library.Library("aten", "IMPL")
    library.impl("_to_cpu", to_cpu, "PrivateUse1")
    return library
