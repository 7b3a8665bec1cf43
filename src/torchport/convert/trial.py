"""Import what a conversion changes on the virtual NPU, before and after, and take back what breaks (`--try`)."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport import vnpu
from torchport.convert.workers import Converted
from torchport.errors import TorchportError
from torchport.findings import Finding, Location, Safety, Severity
from torchport.rules.torch_npu_import import is_test
from torchport.source.kinds import Kind, kind_of
from torchport.source.project import display_name, iter_files

CODE = "TP905"
SECONDS = 60.0  # for each file: a script without `if __name__ == "__main__"` trains when it is imported
_ROUNDS = 5  # a file that is taken back may be the reason for which another one breaks
_LARGEST = 2**20  # bytes of a file that is copied: a larger one is data


def take_back_broken(
    root: Path, converted: Sequence[Converted], *, apart_from: Path | None = None, seconds: float = SECONDS
) -> list[Converted]:
    """Import every changed Python file of `converted`, and collect its tests, in processes on the virtual NPU: as it
    was and as it is converted. A file by which one that was imported no longer is, is left as it was, with a finding;
    one finding says how many were tried. This runs the project's code, on copies of its files.

    Raises TorchportError if `root` is no folder, or the virtual NPU or torch_npu is missing.
    """
    if not root.is_dir():
        raise TorchportError("--try imports the files of a project", hint="Give its folder.")
    files = [one.name for one in converted if one.changed and kind_of(one.name) in (Kind.PYTHON, None)]
    if not files:
        return list(converted)
    now = {one.name: one for one in converted}
    taken: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="torchport-try-") as temporary:
        trees = Path(temporary) / "before" / root.resolve().name, Path(temporary) / "after" / root.resolve().name
        for tree in trees:
            _copy(root, tree, apart_from)
        for one in converted:
            if one.changed:
                (trees[1] / one.name).write_bytes(one.output)
        before = _import_files(trees[0], files, seconds)
        running = [name for name in files if before[name]["error"] == ""]
        after = _import_files(trees[1], running, seconds)
        for _ in range(_ROUNDS):
            broken = {name: why for name in running if (why := _is_worse(before[name], after[name]))}
            blamed = {_blame(name, after[name], now): why for name, why in broken.items()}
            blamed = {name: why for name, why in blamed.items() if name not in taken}
            if not blamed:
                blamed = {name: why for name, why in broken.items() if name not in taken}
            if not blamed:
                break
            for name, why in blamed.items():
                taken[name] = why
                (trees[1] / name).write_bytes(now[name].data)
            after |= _import_files(trees[1], list(broken), seconds)
    late = sum(one["error"] is None for one in before.values())
    rows = [_as_it_was(one, taken[one.name]) if one.name in taken else one for one in converted]
    return _with_summary(rows, len(files), len(running), len(taken), late)


def _copy(folder: Path, tree: Path, apart_from: Path | None) -> None:
    """The project in a folder of its own: its files are copied, as code that is imported may write beside itself."""
    for path in iter_files(folder, apart_from=apart_from):
        target = tree / display_name(path, folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(os.path.realpath(path))
        elif path.is_file() and os.access(path, os.R_OK):
            if path.stat().st_size > _LARGEST:
                target.symlink_to(path.resolve())
            else:
                shutil.copy2(path, target)


def _import_files(tree: Path, files: Sequence[str], seconds: float) -> dict[str, dict[str, Any]]:
    tests = list(filter(is_test, files))
    job = {"tree": str(tree), "files": list(files), "tests": tests, "seconds": seconds}
    ended = subprocess.run(
        [sys.executable, "-m", "torchport.convert.tried"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=os.environ | vnpu.environment() | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        check=False,
    )
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    if len(found) < len(files):
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise TorchportError(
            f"the project cannot be tried on the virtual NPU: {last}",
            hint="`torchport doctor` says what is missing. Without --try nothing is imported.",
        )
    return {one["file"]: one for one in found}


def _is_worse(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The error after the conversion that was not there before; "" if there is none, or if it took too long to tell."""
    if after["error"]:
        return str(after["error"])
    then, now = before.get("items"), after.get("items")
    if after["error"] == "" and then is not None and now is not None and now < then:
        return f"{now} tests that pytest collects, {then} before"
    return ""


def _blame(name: str, after: Mapping[str, Any], now: Mapping[str, Converted]) -> str:
    """The file whose conversion broke the import: the innermost one that was changed."""
    changed = (frame for frame in reversed(after["frames"]) if frame in now and now[frame].changed)
    return next(changed, name)


def _as_it_was(one: Converted, why: str) -> Converted:
    finding = Finding(
        CODE,
        Severity.WARNING,
        Safety.REPORT,
        Location(one.name, 1, 1, 1, 1),
        f"its conversion was taken back: on the virtual NPU it ends with {why}",
        "The file is as it was, which was imported. Convert it by hand, or run it by `torchport run`.",
        evidence={"error": why},
    )
    left = tuple(dataclasses.replace(found, fix=(), safety=Safety.REPORT) for found in one.findings)
    return dataclasses.replace(one, findings=(finding, *left), data=b"", output=b"", edits=())


def _with_summary(
    converted: Iterable[Converted], changed: int, imported: int, taken: int, late: int
) -> list[Converted]:
    others = changed - imported - late
    text = (
        f"tried on the virtual NPU: {changed} changed files, {imported} of them imported before the conversion, "
        f"{taken} taken back; not told: {others} that are not imported as they were, {late} that took too long"
    )
    summary = Finding(CODE, Severity.INFO, Safety.REPORT, None, text)
    rows = list(converted)
    rows[0] = dataclasses.replace(rows[0], findings=(summary, *rows[0].findings))
    return rows
