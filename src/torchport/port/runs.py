"""The two recorded runs of a port: the original on the CPU, the converted script on the NPU."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchport import vnpu
from torchport.findings import Result
from torchport.port import child
from torchport.port.plan import CONVERT, NPU, REFERENCE, RESULT, Plan, step_result
from torchport.port.progress import Progress
from torchport.record import recording
from torchport.record.recording import Recording
from torchport.record.script import is_own

STACKS = "stack.txt"
DEVICES = {REFERENCE: "cpu", NPU: "npu:0"}
# The same for both sides, so that nothing differs by chance, and so that a kill loses no output.
COMMON = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "TORCHPORT_AUTO": "0"}


def record(plan: Plan, step: str, progress: Progress) -> Result:
    """Run one side and leave its recording as the step's folder; the script's own failure is part of the
    recording."""
    script = plan.script if step == REFERENCE else plan.folder(CONVERT) / "tree" / plan.script.name
    environment = {**os.environ, **COMMON, **(_cpu() if step == REFERENCE else _npu())}
    start = time.time()
    with plan.work(step) as folder:
        tail = _Tail(folder / recording.JOURNAL)
        ended = child.run(
            _command(plan, step, script, folder),
            environment,
            folder / recording.STDOUT,
            folder / recording.STDERR,
            plan.timeout,
            lambda seconds: progress.update(tail.text()),
        )
        if ended.timed_out:
            path, line = _where(folder / STACKS, script.parent)
            recording.end_from_outside(folder, ended.status, "", path, line, plan.timeout or 0)
        else:
            recording.end_from_outside(folder, ended.status, "")
        recorded = Recording.read(folder)
        data = {
            "status": ended.status,
            "timed_out": ended.timed_out,
            "seconds": ended.seconds,
            "steps": len(recorded.steps),
            "device": _device(step),
            "wrote": _written_since(start, plan.out),
        }
        result = step_result(step, plan, data)
        result.write(folder / RESULT)
    return result


def _cpu() -> dict[str, str]:
    # An installed torch_npu would be loaded by `import torch`; a real GPU would be another reference than the
    # CPU.
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}


def _npu() -> dict[str, str]:
    return {**vnpu.environment(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}


def _command(plan: Plan, step: str, script: Path, folder: Path) -> list[str]:
    weights = folder / recording.WEIGHTS if step == REFERENCE else plan.folder(REFERENCE) / recording.WEIGHTS
    return [
        sys.executable,
        "-P",  # the current folder must not shadow what the recorder imports; the script's own folder is put back
        "-m",
        "torchport.record",
        *(
            "--out",
            str(folder),
            "--device",
            DEVICES[step],
            "--stack",
            str(folder / STACKS),
            "--die-with-parent",
        ),
        *(("--reference", "--save") if step == REFERENCE else ("--load",)),
        str(weights),
        "--",
        str(script),
        *plan.arguments,
    ]


def _written_since(start: float, out: Path) -> list[str]:
    """Entries of the current folder that were changed after `start` (seconds since the epoch); not hidden ones, not
    `out`.
    """
    own = out.resolve()
    return sorted(
        path.name
        for path in Path().iterdir()
        if path.name[0] != "." and path.lstat().st_mtime >= start and not own.is_relative_to(path.resolve())
    )


def _device(step: str) -> str:
    if step == REFERENCE:
        return "the CPU"
    return f"{DEVICES[step]} ({'virtual' if vnpu.detect().kind is vnpu.Kind.VNPU else 'hardware'})"


def _where(stacks: Path, root: Path) -> tuple[str, int]:
    """The innermost line of the script in the main thread's stack, which faulthandler writes last; empty for
    none."""
    try:
        text = stacks.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "", 0
    main = text.rpartition("Thread 0x")[2] or text
    for path, line in re.findall(r'^  File "(.+)", line (\d+)', main, re.MULTILINE):
        if is_own(Path(path), root):
            return path, int(line)
    return "", 0


class _Tail:
    """The newest step of a journal that is being written, read without going over it again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._last: Mapping[str, Any] | None = None

    def text(self) -> str:
        """Where the run is, for people."""
        self._read()
        return (
            f"step {self._last['step'] + 1}, loss {float(self._last['loss']):.4g}"
            if self._last
            else "starting"
        )

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in reversed(lines):
            if line.startswith(b'{"kind": "step"'):
                self._last = recording.parse(line)
                return
