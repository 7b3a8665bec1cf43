"""When and on which rank a line of a log was written."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from pathlib import PurePath

_MONTHS = {name: at for at, name in enumerate(calendar.month_abbr)}  # English, as nothing here sets a locale
_CLOCK = r"(?P<h>\d{2}):(?P<m>\d{2}):(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}(?:\.\d{1,3})?))?"
# CANN's (2025-06-25-10:45:23.586.187), logging's, ISO's; glog's (W1123 05:04:19.921897397); syslog's and dmesg -T's.
_STAMPS = (
    re.compile(r"\d{4}-(?P<month>\d{2})-(?P<day>\d{2})[-T _]" + _CLOCK),
    re.compile(r"\b[IWEF](?P<month>\d{1,2})(?P<day>\d{2}) " + _CLOCK),
    re.compile(r"(?P<name>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) " + _CLOCK),
)
_RANK = re.compile(r"(?<!\w)\[(?:rank|default)(\d{1,6})\]:|RankID:(\d{1,6})\b|\brank\[(\d{1,6})\]|\[Rank (\d{1,6})\]")
_OF_FILE = re.compile(r"(?:rank|worker|device)[_\-.]?(\d{1,6})(?!\d)", re.IGNORECASE)
_OF_FOLDER = re.compile(r"(\d{1,6})")
BEFORE, AFTER = 20, 3  # lines around one without a time in which one is looked for


def parse_time(line: str) -> float | None:
    """The seconds of the first time in the line, from the beginning of its year; None without one.

    Logs of one run lie in one year, and half of the formats do not say which.
    """
    found = [match for stamp in _STAMPS if (match := stamp.search(line[:300]))]
    if not found:
        return None
    first = min(found, key=lambda match: match.start()).groupdict()
    month = int(first["month"]) if first.get("month") else _MONTHS.get(first.get("name") or "", 0)
    # torch's own (c10) has nine digits, of a clock that is not the wall's; glog itself has six.
    parts = "0" if first["f"] is None or re.fullmatch(r"\d{9}", first["f"]) else first["f"].replace(".", "")
    fraction = float(f"0.{parts}")
    return seconds_of_year(month, int(first["day"]), int(first["h"]), int(first["m"]), int(first["s"])) + fraction


def seconds_of_year(month: int, day: int, hour: int, minute: int, second: int) -> float:
    """A number that grows with time within a year; each month has 31 days, as no more than the order is asked of it."""
    return ((31 * month + day) * 24 + hour) * 3600.0 + minute * 60 + second


def find_line_time(lines: Sequence[bytes], index: int) -> float | None:
    """When the line at `index` was written: by its own time, else the next one's or that of one before."""
    after = range(index, min(index + 1 + AFTER, len(lines)))
    before = range(index - 1, max(index - 1 - BEFORE, -1), -1)
    for at in (*after, *before):
        if (moment := parse_time(lines[at][:400].decode("utf-8", "replace"))) is not None:
            return moment
    return None


def parse_rank(line: str) -> str:
    """The rank that a line names as its own; "" for none. Of several marks the last is the process's own."""
    found = list(_RANK.finditer(line[:400]))
    marks = [match for match in found if match.group(1)] or found[:1]
    return next(filter(None, marks[-1].groups())) if marks else ""


def rank_of_file(path: PurePath) -> str:
    """The rank that a file's name is of: rank_3.log, worker2_stderr.txt, torchrun's attempt_0/3/stderr.log."""
    if match := _OF_FILE.search(path.stem):
        return match.group(1)
    if path.stem in ("stdout", "stderr") and (match := _OF_FOLDER.fullmatch(path.parent.name)):
        return match.group(1)
    return ""
