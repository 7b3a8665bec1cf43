"""The marks of launchers and loggers in front of a line: the rank, the worker, the pod, the time, the level."""

from __future__ import annotations

import re

# torchrun, torch; ray, vllm; docker compose; mpirun; srun -l, pdsh; kubectl, logging; a logger's file; a level.
_MARK = (
    rb"\[[^\[\]\n]{1,60}\](?:<\w{3,6}>)?:?"
    rb"|\([^()\n]{1,90}\)"
    rb"|[\w./-]{1,60} {0,20}\|"
    rb"|(?![EW][A-Z0-9]\d{4}:)(?:\d{1,6}|[\w.-]{1,40}\d): "
    rb"|\d{2,4}[-/:.][\d:.,/TZ+_-]{3,40}"
    rb"|(?:pod/)?[a-z0-9]{1,30}(?:-[a-z0-9]{1,30}){1,6} "
    rb"|(?:ERROR|CRITICAL|FATAL|WARNING|INFO|E\d{4}|W\d{4}|I\d{4})\b:?"
    rb"|\w{1,40}\.(?:py|cc|cpp):\d{1,6}[:\]]?"
    rb"|[|>-] "
)
_MARKS = re.compile(rb"(?:\s*(?:" + _MARK + rb")){0,9}\s?")
_ALL = re.compile(rb"(?:\s|" + _MARK + rb"){0,20}")


def find_end_of_marks(line: bytes) -> int:
    """Where the text of a line begins, behind its marks."""
    match = _MARKS.match(line, 0, 300)
    return match.end() if match else 0


def is_marks(text: bytes) -> bool:
    """Whether a text has nothing but marks in it."""
    return len(text) <= 300 and _ALL.fullmatch(text) is not None
