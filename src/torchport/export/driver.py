"""`torchport export`: read the checkpoint, let a process of its own export and check, and put the file in its place."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchport.checkpoints import guarded, names
from torchport.checkpoints.contents import to_json
from torchport.errors import TorchportError, name_path_in_errors
from torchport.export.job import Job, name_weights_file
from torchport.findings import hash_bytes

LOST = 2000  # characters of what a child said that has died


def export_checkpoint(
    checkpoint: Path,
    part: str | None,
    job: Job,
    target: Path,
    progress: Callable[[str], None],
    *,
    existing: bool = False,
) -> dict[str, Any]:
    """Export and compare. The answer has exporter, operators, rows; `target` is there after it if the word is `holds`.

    `existing` checks a file that is there and exports nothing. Raises TorchportError and OSError; an exception, Ctrl-C
    among them, ends the child and leaves nothing.
    """
    contents = guarded.read_in_subprocess(checkpoint)
    way, _ = names.find_weights(contents, part)
    with name_path_in_errors(target):
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}.", dir=target.parent))
    try:
        made = aside / target.name  # the weights of a large model are in a file that is called after it
        message = {
            "job": dataclasses.asdict(job),
            "contents": to_json(dataclasses.replace(contents, parts={way: contents.parts[way]}, values={}, objects={})),
            "checkpoint": str(checkpoint),
            "part": way,
            "export": not existing,
            "target": str((target if existing else made).absolute()),
            "answer": str((aside / "answer.json").absolute()),
        }
        answer = _run(message, aside, progress)
        answer["part"] = way
        if not existing and answer["word"] == "holds":
            with name_path_in_errors(target):
                with open(made, "rb") as stream:
                    os.fsync(stream.fileno())
                if answer["weights_file"]:
                    os.replace(name_weights_file(made), name_weights_file(target))
                os.replace(made, target)
            answer["sha256"] = hash_bytes(target.read_bytes())
        return answer
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _run(message: dict[str, Any], aside: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    reading, writing = os.pipe()
    # No torch_npu, and nothing of ours that waits for its import: the exporters fail on what it keeps of composites.
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCHPORT_EXPORT_PROGRESS": str(writing)}
    with open(aside / "said", "w+b") as said:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchport.export.child"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            env=environment,
            pass_fds=[writing],
            start_new_session=True,  # Ctrl-C is ours to handle
        )
        os.close(writing)
        try:
            assert child.stdin is not None
            try:
                child.stdin.write(json.dumps(message).encode())
                child.stdin.close()
            except BrokenPipeError:
                pass  # its status says more
            _follow(child, reading, progress)
        finally:
            os.close(reading)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if not (aside / "answer.json").exists() or child.returncode:
            said.seek(max(0, said.seek(0, os.SEEK_END) - LOST))
            words = said.read().decode(errors="replace").strip().splitlines()
            last = words[-1] if words else "without a word"
            raise TorchportError(
                f"the process that exports has ended with status {child.returncode}: {last}",
                hint="Status -9 is often memory that was not enough. --debug shows more."
                if child.returncode == -9
                else "",
            )
    answer: dict[str, Any] = json.loads((aside / "answer.json").read_text())
    if "error" in answer:
        raise TorchportError(answer["error"], hint=answer["hint"])
    return answer


def _follow(child: subprocess.Popen[bytes], reading: int, progress: Callable[[str], None]) -> None:
    text = "starting"
    while True:
        ready, _, _ = select.select([reading], [], [], 0.5)
        if ready:
            data = os.read(reading, 4096)
            if not data:
                break
            text = data.decode(errors="replace").strip().splitlines()[-1]
        progress(text)
    child.wait()
