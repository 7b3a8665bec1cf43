"""Names of places in the user's code, the same in the original and in its port."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType

INSTALLED = ("site-packages", "dist-packages")
# Packages whose frames are between the user's code and what is recorded.
_BETWEEN = tuple(name + os.sep for name in ("torch", "torch_npu", "torchport"))
_OURS = os.path.realpath(os.path.dirname(os.path.dirname(__file__))) + os.sep
_STANDARD = os.path.realpath(os.path.dirname(os.__file__)) + os.sep
# Calls what is compiled, and what is kept from being compiled.
_COMPILER = os.path.join("torch", "_dynamo", "eval_frame.py")
DEEPEST = 80


class Sites:
    """Looks up the calling place.

    `roots` are the folders that stand for the user's own in this run, `lines` has for each converted file (relative to
    its root) the line of the original that each of its lines comes from (index 0: line 1).
    """

    def __init__(self, roots: Iterable[str] = (), lines: Mapping[str, Sequence[int]] | None = None) -> None:
        self._roots = tuple(os.path.realpath(root) + os.sep for root in roots)
        self._lines = lines or {}
        self._files: dict[CodeType, tuple[str, bool]] = {}  # by code: what to call its file, and is it the user's

    def find_calling_line(self, skip: int = 1) -> str:
        """The innermost line that is not torch's or ours, as `model.py:31` or `transformers/trainer.py:7`.

        What runs compiled has no lines of its own: there it is the line that calls what is compiled, also where the
        compiler leaves the code as it is. `skip` leaves out that many of the innermost frames. "" where there is none.
        """
        found = ""
        frame: FrameType | None = sys._getframe(skip)
        for _ in range(DEEPEST):
            if frame is None:
                break
            if frame.f_code.co_filename.endswith(_COMPILER):
                found = ""
            elif not found:
                name, _ = self._file(frame.f_code)
                found = self._place(name, frame) if name else ""
            frame = frame.f_back
        return found

    def find_user_line(self, skip: int = 1) -> str:
        """The innermost line of the user's own files, or that of `find_calling_line` if the stack has none."""
        first = ""
        for name, frame, own in self._walk(sys._getframe(skip)):
            if own:
                return self._place(name, frame)
            first = first or self._place(name, frame)
        return first

    def find_user_frame(self, skip: int = 1) -> FrameType | None:
        """The frame of the line that `find_user_line` gives."""
        first = None
        for _, frame, own in self._walk(sys._getframe(skip)):
            if own:
                return frame
            first = first or frame
        return first

    def find_user_function(self, skip: int = 1) -> tuple[str, str]:
        """The function and the line that `find_user_line` gives; "" and "" where there is no such line."""
        first: tuple[str, str] | None = None
        for name, frame, own in self._walk(sys._getframe(skip)):
            if own or first is None:
                found = frame.f_code.co_qualname, self._place(name, frame)
                if own:
                    return found
                first = found
        return first or ("", "")

    def of_code(self, code: CodeType) -> str:
        """For the recorder of operators: file and function of a code object, behind + for the user's own and - for what
        is installed; "" for what stands between."""
        name, own = self._file(code)
        return f"{'+' if own else '-'}{name}\t{code.co_qualname}" if name else ""

    def is_users(self, path: str) -> bool:
        """Whether a source file is the user's own: neither installed, nor Python's, nor ours."""
        return self._named(path)[1]

    def _walk(self, frame: FrameType | None) -> Iterator[tuple[str, FrameType, bool]]:
        depth = 0
        while frame is not None and depth < DEEPEST:
            name, own = self._file(frame.f_code)
            if name:
                yield name, frame, own
            frame, depth = frame.f_back, depth + 1

    def _place(self, name: str, frame: FrameType) -> str:
        line = frame.f_lineno or 0
        lines = self._lines.get(name)
        return f"{name}:{lines[line - 1] if lines and 0 < line <= len(lines) else line}"

    def _file(self, code: CodeType) -> tuple[str, bool]:
        known = self._files.get(code)
        if known is None:
            known = self._files[code] = self._named(code.co_filename)
        return known

    def _named(self, path: str) -> tuple[str, bool]:
        if path.startswith("<"):
            return "", False
        real = os.path.realpath(path)
        if real.startswith(_OURS):
            return "", False
        word = next((word for word in INSTALLED if f"{os.sep}{word}{os.sep}" in real), "")
        if word:
            name = real.rpartition(f"{os.sep}{word}{os.sep}")[2]
            return "" if name.startswith(_BETWEEN) else name, False
        for root in self._roots:
            if real.startswith(root):
                return real[len(root) :], True
        if real.startswith(_STANDARD):  # runpy, threading: not places of training
            return "", False
        return real, True
