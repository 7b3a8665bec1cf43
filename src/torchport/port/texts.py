"""Texts, JSON and tables that two runs wrote: the same words, and numbers that differ as rounding makes them."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path

from torchport.checkpoints.tensors import Unreadable
from torchport.checkpoints.values import flatten_containers

LARGEST = 64 << 20  # bytes of a text that is looked into
FLOOR = 1e-3  # numbers nearer to zero are compared as if they were this
# Two runs of one program do not share when, where and how fast they run. A pattern of words of any length begins where
# a word begins, and a run of digits ends where the digits end: a line of base64 has a megabyte without a blank.
MASKS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<![^\s'\"(=])[^\s'\"(=]*/(?:reference|npu)(?:\.unfinished)?/(?:view|files)(?=/|\b)",
        r"\b\d{4}-\d\d-\d\d(?:[T _]\d\d[:-]\d\d[:-]\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?",
        r"\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b",
        r"\b(?:time|elapsed|duration|eta|speed|throughput|took|timestamp)\w*\W{1,4}[-+\d.e]+",
        r"\b\w*(?:runtime|per_sec)\w*\W{1,4}\d[\d.e+-]*",
        r"\b(?:\w*_)?mem(?:ory)?(?:_(?:[mgk]i?b|bytes|us(?:ed|age)|alloc|reserv|peak|max|free|total)\w*)?\W{1,4}[-+\d.e]+",
        r"\b\d++(?:\.\d++)?\s?(?:s|ms|us|µs|secs?|seconds?|min|minutes?|hours?|it/s|s/it|[kmg]i?b(?:/s)?|\w*/s(?:ec)?)\b",
        r"\b1[6-9]\d{8}(?:\.\d+)?\b",
        r"\b0x[0-9a-f]{6,}\b",
        r"\b(?:(?:cuda|npu|cpu)(?::\d+)?|nccl|hccl)\b",
        r"(?<![a-z])[gn]pu(?![a-z])",  # in names of more words, too: accelerate's MULTI_GPU is MULTI_NPU
    )
)
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?(?!\w)|\bnan\b|[-+]?\binf\b", re.IGNORECASE)
TIMED = re.compile(
    r"time|second|elapsed|duration|\bdate|stamp|speed|throughput|per_sec|/s\b|fps|\beta\b|memory|\bpid\b|host|uuid",
    re.IGNORECASE,
)


def number_difference(reference: float, port: float) -> float:
    """How far two numbers are apart, relative to the larger; 0 for two NaN, infinite where only one is finite."""
    if reference == port or (math.isnan(reference) and math.isnan(port)):
        return 0.0
    difference = abs(reference - port) / max(abs(reference), abs(port), FLOOR)
    return difference if math.isfinite(difference) else math.inf


def pick_worst(rows: Iterable[tuple[float, float, str]]) -> tuple[float, str, bool]:
    """Of rows (difference, bound, place) the largest difference above its bound, else the largest, with its place and
    whether it is above. 0 and "" if nothing differs."""
    difference, allowed, where = max(rows, key=lambda row: (row[0] > row[1], row[0]), default=(0.0, 0.0, ""))
    return difference, where if difference else "", difference > allowed


def read_text(path: Path) -> str:
    """The text of a file. Raises Unreadable for what is none, and OSError."""
    if path.stat().st_size > LARGEST:
        raise Unreadable("a text too large to look into")
    data = path.read_bytes()
    if b"\0" in data:
        raise Unreadable("no text")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable("no text in UTF-8") from error


def compare_texts(reference: str, port: str) -> tuple[float, str]:
    """The largest difference of numbers, and the first place where words differ (empty for none; then infinite)."""
    one, other = mask_text(reference), mask_text(port)
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        lines = (one.splitlines(), other.splitlines())
        for number, (left, right) in enumerate(zip(*lines, strict=False), 1):
            if NUMBER.sub("#", left) != NUMBER.sub("#", right):
                return math.inf, f"line {number}: {_short(left)} against {_short(right)}"
        return math.inf, f"{len(lines[0])} lines against {len(lines[1])}"
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return max((number_difference(float(a), float(b)) for a, b in pairs), default=0.0), ""


def mask_text(text: str) -> str:
    """The text without dates, durations, rates, memory, addresses, names of devices, backends and the runs' folders."""
    for mask in MASKS:
        text = mask.sub("~", text)
    return text


def read_json(path: Path) -> dict[str, object]:
    """What a JSON file, or one with a JSON value on each line, holds, flat. Raises Unreadable and OSError."""
    text = read_text(path)
    try:
        if path.suffix.lower() in (".jsonl", ".ndjson"):
            value = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            value = json.loads(text)
        return flatten_containers(value)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"no JSON: {error}") from error


def read_table(path: Path) -> dict[str, object]:
    """The cells of a CSV file by row and column. Raises Unreadable and OSError."""
    text = read_text(path)
    try:
        rows = list(csv.reader(text.splitlines(), "excel-tab" if path.suffix.lower() == ".tsv" else "excel"))
    except csv.Error as error:
        raise Unreadable(f"no table: {error}") from error
    if not rows:
        return {}
    head = rows[0]
    found: dict[str, object] = {f"column {place}": name for place, name in enumerate(head)}
    for number, row in enumerate(rows[1:], 2):
        for place, cell in enumerate(row):
            name = head[place] if place < len(head) else str(place)
            found[f"line {number}, {name}"] = float(cell) if NUMBER.fullmatch(cell.strip()) else cell
    return found


def _short(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")
