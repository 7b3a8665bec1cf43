"""A reference that was recorded elsewhere, by `torchport run --record`, in place of the run that `port` makes."""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.findings import copy_file
from torchport.port.plan import Plan
from torchport.record import recording
from torchport.record.recording import Recording
from torchport.results.port import Run

_AGAIN = "Record it again: `torchport run --record DIR`, with the same script and words as here."
_TENSORS = (recording.WEIGHTS, recording.BATCHES)


def check_reference(plan: Plan) -> Recording:
    """The recording that `plan.reference` names.

    Raises TorchportError where it is none, is damaged or was not finished, has no step of training or none of the
    original's weights, or was made of another script, other arguments or another number of processes.
    """
    path = plan.reference
    assert path is not None
    given = Recording.from_directory(path)
    if given.end is None:
        raise TorchportError(f"the recording {path} was not finished", hint=_AGAIN)
    if not given.steps:
        raise TorchportError(
            f"the recording {path} has no step of training (exit status {given.status})",
            hint="Record a run in which the script trains.",
        )
    source = given.head.get("source")
    if not isinstance(source, dict):
        raise TorchportError(
            f"the recording {path} does not say of which script it is: it was not made by `torchport run --record`",
            hint=_AGAIN,
        )
    differing = list(_differing(source, plan.describe_source()))
    if differing:
        raise TorchportError(f"the recording {path} is of another run: {'; '.join(differing)}", hint=_AGAIN)
    damaged = next(_damaged(given), "")
    if damaged:
        raise TorchportError(f"the recording {path} is damaged: {damaged}", hint=_AGAIN)
    return given


def place_reference(plan: Plan, folder: Path) -> Run:
    """Put the given recording, checked, into the step's `folder`, in place of a run."""
    given = check_reference(plan)
    shutil.copytree(given.path, folder, copy_function=_linked, dirs_exist_ok=True)
    end = given.end
    assert end is not None
    # Where it computed, which is not where it was meant to where CUDA is missing.
    on_cpu = given.trained[0].steps[0].get("device", "cpu") == "cpu"
    device = "the CPU" if on_cpu else str(given.head.get("device", ""))
    return Run(
        command=plan.command,
        status=end.status,
        ended=given.stopped,
        seconds=end.seconds,
        steps=given.steps,
        device=device,
        ranks=len(given.trained),
        files=(),
        modules=(),
        given=str(given.path),
        notes=(
            f"the reference was recorded before, on {device}: {given.path}",
            *dict.fromkeys(str(event["text"]) for event in given.of_kind("note")),
        ),
    )


def _differing(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    for name, what in {
        "script": "script",
        "words": "command",
        "arguments": "arguments",
        "processes": "processes",
    }.items():
        if theirs.get(name) != ours[name]:
            yield f"its {what}: {_said(theirs.get(name))}, here {_said(ours[name])}"
    kept, here = theirs.get("files", {}), ours["files"]
    changed = sorted(name for name in {*kept, *here} if kept.get(name) != here.get(name))
    if changed and theirs.get("script") == ours["script"]:
        yield f"these files are others here: {', '.join(changed[:5])}"


def _said(value: Any) -> str:
    return (" ".join(value) if isinstance(value, list) else str(value)) or "none"


def _damaged(given: Recording) -> Iterator[str]:
    """What of the stored tensors is missing or cannot be read; whole files of torch.save are archives."""
    folder = given.path / recording.WEIGHTS
    for event in given.of_kind("weights"):
        if event["action"] == "saved" and not any(folder.glob(f"*/{event['name']}.pt")):
            yield f"{recording.WEIGHTS}/*/{event['name']}.pt is missing"
    for path in (path for name in _TENSORS for path in sorted((given.path / name).glob("*/*.pt"))):
        try:
            with zipfile.ZipFile(path) as archive:
                bad = archive.testzip()
        except (zipfile.BadZipFile, OSError) as error:
            yield f"{path.relative_to(given.path)} ({error})"
        else:
            if bad is not None:
                yield f"{path.relative_to(given.path)} ({bad})"


def _linked(source: str, target: str) -> None:
    """A recording is not written to again, so a second name for the same file will do."""
    with contextlib.suppress(OSError):  # another file system, or one without links
        os.link(source, target)
        return
    copy_file(Path(source), Path(target))
