"""What was done to a script's calls, by place: redirected, fallen back to the CPU, not possible.

A place is a code object and the offset of the call in it, which costs nothing to look at; files, lines and source
text are worked out when the process ends. Then the places are appended to the audit file (`TORCHPORT_AUDIT`), and a
short summary goes to stderr.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from torchport.audit import BACKWARD, Event, Kind
from torchport.auto.views import script_frame
from torchport.record.cards import ELSEWHERE_TOO

if TYPE_CHECKING:
    from torchport.results.port import Card

SHOWN = 6  # places of each kind in the summary

_Place = tuple[Kind, CodeType | None, int, str, str]


class Log:
    """The events of this process. Counting from several threads at once may lose a count, never a place."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK") or 0)  # of this process in a distributed run
        self._counts: dict[_Place, int] = {}
        self._bytes: dict[_Place, int] = {}
        self._folder = os.getcwd()

    def count_redirected_call(self, original: str, replacement: str) -> None:
        """Count a call of `original` that the nearest script frame above makes."""
        frame = script_frame(sys._getframe(1).f_back)
        if frame is None:
            return
        place = (Kind.REDIRECTED, frame.f_code, frame.f_lasti, original, replacement)
        self._counts[place] = self._counts.get(place, 0) + 1

    def count_unsupported_call(self, original: str, instead: str) -> None:
        """Count a call of something that there is no way to do."""
        self._count(Kind.UNSUPPORTED, original, instead)

    def count_cpu_fallback(self, original: str, moved: int) -> None:
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

    def collect_events(self) -> list[Event]:
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


def format_summary(events: list[Event], audit: str) -> Iterator[str]:
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
            yield from (f"  {row.format_line()}" for row in rows[:SHOWN])
            if len(rows) > SHOWN:
                yield (
                    f"  ... and {len(rows) - SHOWN} more: see {audit}"
                    if audit
                    else (f"  ... and {len(rows) - SHOWN} more: `--audit FILE` lists all")
                )


def format_cards(cards: list[Card], rank: int) -> Iterator[str]:
    """Warn of a rank that holds memory of the first NPU beside its own.

    `cards` are the NPUs that it has opened, the one that it works on first.
    """
    first = [card for card in cards[1:] if card.device == "npu:0"]
    if first:
        yield (
            f"torchport: warning: rank {rank} works on {cards[0].name} and holds {first[0].held / 2**20:,.0f} MiB of "
            f"{first[0].name} as well. {ELSEWHERE_TOO}"
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
        log.count_cpu_fallback(name, sum(tensor.nbytes for tensor in tensors if tensor.device.type != "cpu"))
        return [tensor.cpu() for tensor in tensors]

    library = torch.library.Library("aten", "IMPL")
    library.impl("_to_cpu", to_cpu, "PrivateUse1")
    return library
