"""CANN's own log of the processes that a log names: plog, which says more than torch_npu prints.

CANN writes one file per process into ~/ascend/log (ASCEND_PROCESS_LOG_PATH), below debug/plog, run/plog and
debug/device-N, whose name has the PID and when it was begun: plog-159_20250326170102816.log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from torchport.diagnose.logs import Event, Log, scan_log
from torchport.diagnose.moments import seconds_of_year
from torchport.diagnose.reading import NotTextError
from torchport.logs.opening import open_log

FILES = 64  # that are read
LONGEST_RUN = 7 * 86400.0  # seconds from the beginning of a file to an event in it
_PID = re.compile(r"\(?PID: ?(\d{2,8})\b|\bpid[=: ]{1,2}(\d{2,8})\b")
_NAME = re.compile(r"(?:plog|device)-(\d{1,8})_(\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})\d{0,6}\.log")


def default_folder() -> Path:
    """Where CANN writes its logs for this user."""
    return Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or Path.home() / "ascend/log")


def find_plogs(folder: Path, events: Iterable[Event]) -> list[Path]:
    """The files below `folder` of processes that these events name, begun before them; by name."""
    wanted: dict[str, float | None] = {}
    for event in events:
        for match in _PID.finditer(event.text):
            pid = match.group(1) or match.group(2)
            wanted[pid] = event.when if wanted.get(pid) is None else max(wanted[pid] or 0.0, event.when or 0.0)
    if not wanted:
        return []
    found = []
    for where, _, names in os.walk(folder):
        for name in names:
            told = _NAME.match(name)
            if told is None or told.group(1) not in wanted:
                continue
            _, _, month, day, hour, minute, second = told.groups()
            begun = seconds_of_year(int(month), int(day), int(hour), int(minute), int(second))
            when = wanted[told.group(1)]
            if when is None or begun - 60 <= when <= begun + LONGEST_RUN:
                found.append(Path(where, name))
    return sorted(found)[:FILES]


def scan_plogs(folder: Path, logs: Iterable[Log], limit: int) -> tuple[list[Log], list[str]]:
    """The plogs that belong to these logs, and in a sentence each what could not be read."""
    found, unread = [], []
    for path in find_plogs(folder, [event for log in logs for event in log.events]):
        try:
            with open_log(path) as stream:
                found.append(scan_log(stream, str(path), limit))
        except (OSError, EOFError, NotTextError) as error:
            unread.append(f"{path} was not read: {error}")
    return found, unread
