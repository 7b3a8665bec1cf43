"""CANN's dump files as a recording: one step, a call for each file."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.record import recording
from torchport.record.operators import layout, measure
from torchport.record.operators.tables import Row, StepTables, Tables
from torchport.record.operators.writing import Writer

# <type>.<name>.<task>.<stream>.<microseconds>, the name with dots or without.
_NAME = re.compile(r"(?P<type>\w+)\.(?P<name>.*)\.(?P<task>\d+)\.(?P<stream>\d+)\.(?P<time>\d+)")


class _Queue:
    def __init__(self) -> None:
        self.items: list[tuple[str, Any]] = []

    def take_item(self) -> tuple[str, Any] | None:
        return self.items.pop(0) if self.items else None


def convert_dumps(folder: Path, out: Path) -> int:
    """Write the dump files below `folder`, in the order of their times, as step 0 of a recording in `out`; how many.

    Raises TorchportError where there is none, one is damaged, torch is missing, or `out` holds something.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TorchportError(f"{out} is not empty", hint="Give -o a folder that is new or empty.")
    found = [
        (match, path)
        for path in sorted(folder.rglob("*"))
        if (match := _NAME.fullmatch(path.name)) and not path.is_dir()
    ]
    if not found:
        raise TorchportError(
            f"{folder} has no dump file of CANN's (<type>.<name>.<task>.<stream>.<time>)",
            hint="Give the folder that aclmdlSetDump's dump_path names.",
        )
    from torchport.record.operators import dump_file  # imports torch

    queue = _Queue()
    tables = Tables(lambda block: queue.items.append(("block", block)))
    for match, path in sorted(found, key=lambda one: int(one[0]["time"])):
        try:
            tensors = dump_file.read_dump_file(path)
        except ValueError as error:
            raise TorchportError(str(error), hint="Copy it again, or leave it out.") from error
        except OSError as error:
            raise TorchportError(
                f"{path} cannot be read: {error.strerror}", hint="Copy it again, or leave it out."
            ) from error
        inputs, outputs = ([_added(tables, tensor) for tensor in tensors[kind]] for kind in ("input", "output"))
        tables.add_call(
            f"cann::{match['type']}",
            "",
            0,
            inputs,
            outputs,
            source=match["name"],
            sequence=-1,
            thread=int(match["stream"]),
        )
    calls = tables.calls
    queue.items.append(("step", ("000000", tables.finish_tables())))
    _write(folder, out, queue)
    return calls


def _added(tables: Tables, tensor: Any) -> int:
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    data, _ = measure.flat_bytes(torch, tensor)
    row = Row([*tensor.shape, *tensor.stride()], dtype, "npu", elements=tensor.numel())
    measured = measure.of_bytes(dtype, data, 1)
    if measured is None:
        row.reason = f"nothing here measures {dtype}"
    return tables.add_tensor(row, measured, data)


def _write(folder: Path, out: Path, queue: _Queue) -> None:
    out.mkdir(parents=True, exist_ok=True)
    recording.begin_recording(out, side="cann", command=["dump", str(folder)], device="npu:0", seed=0)
    journal = recording.Journal(out)
    journal.write_event("process", pid=os.getpid(), name="MainProcess", rank=0, world=1)

    def written(name: str, path: Path, tables: StepTables, size: int) -> None:
        journal.write_event(
            "operators",
            step=0,
            file=str(path.relative_to(out)),
            calls=len(tables.arrays["calls"]),
            tensors=len(tables.arrays["tensors"]),
            bytes=size,
            lost=0,
        )

    about: dict[str, Any] = {
        "level": layout.TENSOR,
        "recorder": "cann",
        "side": "cann",
        "rank": 0,
        "pid": os.getpid(),
        "filters": {},
    }
    place = out / layout.FOLDER
    writer = Writer(queue, place, f"process-{os.getpid()}.h5", lambda: place / "rank0", lambda: about, written)
    writer.join()
    journal.close()
    if writer.failure:
        shutil.rmtree(out)  # it was new or empty
        raise TorchportError(writer.failure, hint="Give -o another place.")
