"""The files that two runs of a script left, compared by name and kind."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from torchport.checkpoints.tensors import Tensor, Unreadable, read_npy, read_npz, relative_difference
from torchport.checkpoints.values import read_checkpoint, read_safetensors
from torchport.port.events import read_events
from torchport.port.printed import find_shares
from torchport.port.texts import (
    TIMED,
    compare_texts,
    mask_text,
    number_difference,
    pick_worst,
    read_json,
    read_table,
    read_text,
)
from torchport.port.view import is_byproduct
from torchport.port.wandb_log import read_wandb
from torchport.results.port import FileRow

# Relative: what the whole run of a float32 port is held to (compare.tolerance).
TOLERANCE = 1e-2
CLOSE = 1e-3  # of tensors, and at most of all numbers if nothing but float32's rounding moves them
CLOSEST = 1e-4
IMAGES = frozenset((".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".pdf"))
# What experiment trackers write for themselves: times, machines and identities of runs.
TRACKERS = frozenset(("wandb", "mlruns", "swanlog", "mlflow.db"))
READERS: dict[str, tuple[str, Callable[[Path], dict[str, object]]]] = {
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".tar"), ("checkpoint", read_checkpoint)),
    ".safetensors": ("safetensors", read_safetensors),
    ".npz": ("npz", read_npz),
    ".npy": ("npy", lambda path: {"array": read_npy(path.read_bytes())}),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), ("json", read_json)),
    **dict.fromkeys((".csv", ".tsv"), ("csv", read_table)),
}
EVENTS, WANDB = "events", "wandb"  # scalars of TensorBoard, and those that wandb logs offline
LOGS = {EVENTS: read_events, WANDB: read_wandb}
NUMBERS = frozenset((*LOGS, *(kind for kind, _ in READERS.values())))  # kinds of files that are read as numbers
TENSORS = frozenset(("checkpoint", "safetensors", "npz", "npy"))
JUDGED = NUMBERS | {"text", "file"}
# torch_npu's GradScaler keeps one number more than torch's (torch_npu/npu/amp/grad_scaler.py, 2.13).
OWN_TO_NPU = re.compile(r"(?:^|\.)scaler\w*\.dynamic$|^dynamic$")
RANDOM_STATE = re.compile(r"(?:^|[._])rng(?:[._]|$)|_rng|rng_state|random_state", re.IGNORECASE)  # each device's own
# Parts of names that say when, where or which time a run was. The first that fits is taken, so the longer ones come
# first: the time in TensorBoard's names begins like a date, and so may an identity.
NAMED_BY_CHANCE = re.compile(
    "|".join(
        (
            r"(?<=tfevents\.).*",
            r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_[\w.-]+",  # a folder of SummaryWriter's, with the host's name
            r"(?<![0-9a-z])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-z])",  # UUID
            r"1[6-9]\d{8}\.\d+",  # time.time()
            r"(?<![0-9a-z])[0-9a-f]{8,}(?![0-9a-z])",
            r"(?<=-)[0-9a-z]{8}(?=$|/|\.wandb$)",  # wandb
            r"\d{8,}",  # a date without hyphens, too
            r"\d{4}-\d\d-\d\d",
            r"\d\d[-:]\d\d[-:]\d\d",
            r"(?<!\d)\d{2,4}(?:_\d\d){2,5}(?!\d)",
            r"(?<!\d)\d\d?h[-_]?\d\d?m(?:in)?(?:[-_]?\d\d?s)?",
            r"(?<!\d)\d{6}(?!\d)",
        )
    )
)
DIGITS = re.compile(r"(\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class _Bounds:
    """How far numbers of a file may be apart: `least`, or `times` the distance of those in the file `again`; shares of
    samples by `points` of a hundred."""

    least: float
    again: Path | None = None
    times: float = 1.0
    points: float = 0.0


def _get_tolerance(name: str, tolerance: float) -> float:
    """By how much the contents of this file may differ, relative."""
    return CLOSE if _kind(name) in TENSORS else tolerance


@dataclasses.dataclass(frozen=True, slots=True)
class Again:
    """The files in `folder` of another run of the original, with rounding noise: numbers of the port may be `times` as
    far from the original's as its numbers are, and shares of samples `points` of a hundred."""

    folder: Path
    times: float
    points: float = 0.0


def compare_files(
    reference: Path, port: Path, again: Again | None = None, tolerance: float = TOLERANCE
) -> list[FileRow]:
    """The files below two folders, by name; numbers in them may differ by `tolerance` (in tensors by `CLOSE`), or by
    what `again` shows.

    Values that `again` does not have, or has in other words, are not compared. Hidden, temporary and cache files are
    left out. Names with a date or the like name one file where the rest of the names is the same. Nothing in the files
    is executed. A folder that is missing has none.
    """
    rows = []
    more = {} if again is None else {one: other for _, one, other in _pairs(_files(reference), _files(again.folder))}
    for name, one, other in _pairs(_files(reference), _files(port)):
        if one is not None and other is not None:
            row = _compare(name, reference / one, port / other, _Bounds(_get_tolerance(name, tolerance)))
            if row.equal is False and again is not None and _kind(name) in JUDGED:
                third = more.get(one)
                if third is None:
                    row = dataclasses.replace(row, equal=None, note=_and(row.note, "the original, run again, lacks it"))
                else:
                    bounds = _Bounds(_get_tolerance(name, tolerance), again.folder / third, again.times, again.points)
                    row = _compare(name, reference / one, port / other, bounds)
            if one != other:
                row = dataclasses.replace(row, note=_and(row.note, f"the port's is {other}"))
            rows.append(row)
            continue
        equal = None if _kind(name) == "tracker" else False
        left = _size(reference / one) if one is not None else ""
        right = _size(port / other) if other is not None else ""
        note = f"only the {'original' if left else 'port'}'s run wrote it"
        rows.append(FileRow(name, _kind(name), left, right, equal, None, note))
    return rows


def _files(folder: Path) -> list[str]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = os.path.relpath(place, folder)
        for name in names:
            path = os.path.normpath(os.path.join(inside, name))
            hidden = name.startswith(".") or name.endswith((".tmp", ".lock"))
            if not hidden and not is_byproduct(path) and os.path.isfile(os.path.join(place, name)):
                found.append(path)
    return sorted(found)


def _pairs(one: list[str], other: list[str]) -> list[tuple[str, str | None, str | None]]:
    """Names that belong together, the same ones first; those of one side have None."""
    same = set(one) & set(other)
    pairs: list[tuple[str, str | None, str | None]] = [(name, name, name) for name in same]
    sides: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, names in enumerate((one, other)):
        for name in names:
            if name not in same:
                sides[NAMED_BY_CHANCE.sub("*", name)][side].append(name)
    for masked_name, (left, right) in sides.items():
        if "*" in masked_name and len(left) == len(right):
            pairs += [(a, a, b) for a, b in zip(*map(_sort_by_numbers, (left, right)), strict=True)]
        else:
            pairs += [*((name, name, None) for name in left), *((name, None, name) for name in right)]
    return sorted(pairs, key=lambda pair: pair[0])


def _sort_by_numbers(names: list[str]) -> list[str]:
    """Sorted so that a later time and a higher count come later, however many digits they have."""
    return sorted(names, key=lambda name: [int(part) if part.isdecimal() else part for part in DIGITS.split(name)])


def _kind(name: str) -> str:
    path = Path(name)
    suffix = path.suffix.lower()
    if "tfevents" in path.name:
        return EVENTS
    if suffix == ".wandb":
        return WANDB
    if not TRACKERS.isdisjoint(path.parts):
        return "tracker"
    if suffix in READERS:
        return READERS[suffix][0]
    return "image" if suffix in IMAGES else "file"


def _compare(name: str, one: Path, other: Path, bounds: _Bounds) -> FileRow:
    kind = _kind(name)
    sizes = (_size(one), _size(other))
    try:
        if _same_bytes(one, other):
            return FileRow(name, kind, *sizes, True, 0.0, "")
        if kind == "tracker":
            return FileRow(name, kind, *sizes, None, None, "has times and names of the run in it; not compared")
        if RANDOM_STATE.search(Path(name).stem):
            return FileRow(name, kind, *sizes, None, None, "states of random generators are each device's own")
        if kind == "image":
            return _images(name, one, other, sizes)
        read = LOGS.get(kind) or READERS.get(one.suffix.lower(), ("", None))[1]
        if read is not None:
            return _contents(name, read, (one, other), sizes, bounds)
    except Unreadable as reason:
        unreadable = str(reason)
    else:
        unreadable = ""
    return _plain(name, one, other, sizes, bounds, unreadable)


def _contents(
    name: str,
    read: Callable[[Path], dict[str, object]],
    paths: tuple[Path, Path],
    sizes: tuple[str, str],
    bounds: _Bounds,
) -> FileRow:
    """Two files of a kind that is read. Raises Unreadable where neither can be."""
    kind = _kind(name)
    contents: list[dict[str, object]] = []
    reasons: list[str] = []
    for path in paths:
        try:
            contents.append(read(path))
            reasons.append("")
        except Unreadable as reason:
            reasons.append(str(reason))
    if len(contents) == 1:
        whose, why = ("port", reasons[1]) if reasons[1] else ("original", reasons[0])
        return FileRow(name, kind, *sizes, False, None, f"the {whose}'s cannot be read: {why}")
    if not contents:
        raise Unreadable(reasons[0])
    again = None if bounds.again is None else read(bounds.again)
    equal, difference, note = compare_contents(
        contents[0], contents[1], bounds.least, again, bounds.times, bounds.points
    )
    said = [_said(content, size) for content, size in zip(contents, sizes, strict=True)]
    return FileRow(name, kind, said[0], said[1], equal, difference, note)


def _plain(name: str, one: Path, other: Path, sizes: tuple[str, str], bounds: _Bounds, unreadable: str) -> FileRow:
    """Two files that nothing is known about, or that are not what their name says."""
    kind = _kind(name)
    try:
        texts = read_text(one), read_text(other)
    except Unreadable as reason:
        why = unreadable or str(reason)
        note = f"the bytes differ, and the contents are not compared: {why}"
        return FileRow(name, kind, *sizes, None, None, note)
    difference, place = compare_texts(*texts)
    allowed = bounds.least
    if bounds.again is not None:
        moved, words = compare_texts(texts[0], read_text(bounds.again))
        allowed = max(allowed, bounds.times * moved)
        if words:
            return FileRow(name, kind, *sizes, None, None, "it differs between two runs of the original, too")
    lines = [f"{len(text.splitlines())} lines" for text in texts]
    note = place if place else f"numbers differ by {difference:.1e}" if difference else ""
    kind = "text" if kind == "file" else kind
    return FileRow(name, kind, lines[0], lines[1], difference <= allowed, _finite(difference), _and(note, unreadable))


def compare_contents(
    reference: Mapping[str, object],
    port: Mapping[str, object],
    tolerance: float,
    again: Mapping[str, object] | None = None,
    times: float = 1.0,
    points: float = 0.0,
) -> tuple[bool | None, float | None, str]:
    """Whether two flat contents are equal within `tolerance`, or within `times` the distance of `again` from the
    reference, and shares of samples within `points` of a hundred; the largest difference, and what differs first or
    most."""
    missing = [name for name in reference if name not in port and not _is_left_out(name, reference[name])]
    more = [
        name
        for name in port
        if name not in reference and not OWN_TO_NPU.search(name) and not _is_left_out(name, port[name])
    ]
    if missing or more:
        whose, which = ("original", missing) if missing else ("port", more)
        return (False, None, f"only the {whose}'s has {which[0]}" + f" and {len(which) - 1} more" * (len(which) > 1))
    unknown = ""
    rows: list[tuple[float, float, str]] = []
    for name, one in reference.items():
        other = port.get(name)
        if _is_left_out(name, one):
            continue
        difference = 0.0 if points and _is_near_share(name, one, other, points) else _difference(one, other)
        moved = 0.0 if again is None else _difference(one, again.get(name))
        if isinstance(moved, str) or moved is None:  # between two runs of the original, too
            continue
        if isinstance(difference, str):
            return False, None, f"{name}: {difference}"
        if difference is None:
            unknown = unknown or name
        else:
            rows.append((difference, max(tolerance, times * moved), name))
    worst, where, apart = pick_worst(rows)
    note = f"largest difference in {where}: {worst:.1e}" if where else ""
    if unknown:
        note = _and(note, f"{unknown} differs and cannot be compared")
        return (False if apart else None), _finite(worst), note
    return not apart, _finite(worst), note


def _is_left_out(name: str, value: object) -> bool:
    """Whether a value says nothing of what a run computed: a random state, a time, memory."""
    return bool(RANDOM_STATE.search(name) or (TIMED.search(name) and not isinstance(value, Tensor)))


def _is_near_share(name: str, one: object, other: object, points: float) -> bool:
    """Whether both values are a share of samples, as the name says, and no more than `points` of a hundred apart."""
    if not (isinstance(one, float) and isinstance(other, int | float)):
        return False
    shares = find_shares(f"{name.rpartition('.')[2]} {one!r}")
    return abs(one - other) <= points * shares.get(one, 0.0)


def _difference(one: object, other: object) -> float | str | None:
    """How far two values are apart; a text for those that are not of one kind, None for those not comparable."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one} against {other}"
        return relative_difference(one, other)
    if isinstance(one, bool) or isinstance(other, bool):
        return 0.0 if one is other else f"{one} against {other}"
    if isinstance(one, int | float) and isinstance(other, int | float):
        try:
            return number_difference(float(one), float(other))
        except OverflowError:
            return 0.0 if one == other else math.inf
    if isinstance(one, str) and isinstance(other, str):
        if one == other or mask_text(one) == mask_text(other):
            return 0.0
        difference, place = compare_texts(one, other)
        return place if place else difference
    if isinstance(one, bytes | bytearray) and isinstance(other, bytes | bytearray):
        return 0.0 if one == other else None
    same = type(one) is type(other)
    return (0.0 if one == other else None) if same else f"{_name(one)} against {_name(other)}"


def _images(name: str, one: Path, other: Path, sizes: tuple[str, str]) -> FileRow:
    shapes = [_png_shape(path) for path in (one, other)]
    if shapes[0] != shapes[1]:
        return FileRow(
            name, "image", *sizes, False, None, f"{shapes[0] or 'no PNG'} against {shapes[1] or 'no PNG'} pixels"
        )
    return FileRow(name, "image", *sizes, None, None, "the bytes differ; pictures are not compared")


def _png_shape(path: Path) -> str:
    """Width and height of a PNG; empty for other formats."""
    with open(path, "rb") as stream:
        head = stream.read(24)
    if head[:8] != b"\x89PNG\r\n\x1a\n" or head[12:16] != b"IHDR":
        return ""
    return f"{int.from_bytes(head[16:20], 'big')} x {int.from_bytes(head[20:24], 'big')}"


def _same_bytes(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with open(one, "rb") as left, open(other, "rb") as right:
        while data := left.read(1 << 20):
            if data != right.read(1 << 20):
                return False
    return True


def _said(content: Mapping[str, object], size: str) -> str:
    tensors = sum(isinstance(value, Tensor) for value in content.values())
    return f"{tensors} tensor{'s' * (tensors != 1)}, {size}" if tensors else f"{len(content)} values, {size}"


def _size(path: Path) -> str:
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def _name(value: object) -> str:
    return str(value) if isinstance(value, Tensor) else type(value).__name__


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _and(note: str, more: str) -> str:
    return "; ".join(part for part in (note, more) if part)
