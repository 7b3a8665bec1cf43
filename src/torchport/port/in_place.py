"""A run of the user's own, where it is and as it is, that leaves a recording: `torchport run --record`."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.launch.keeper import Ended
from torchport.port import surroundings, tee
from torchport.port.plan import UNFINISHED, Plan
from torchport.record import recording, session
from torchport.record.recording import End, Recording

SIDES = {"cpu": session.REFERENCE, "cuda": session.CUDA, "npu": session.NPU}
DEVICES = {"cpu": "cpu", "cuda": "cuda:0", "npu": "npu:0"}
SAME = "PYTHONHASHSEED"  # the order of sets is the same in the runs of a port
REPLACED = ".replaced"


def record_in_place(
    plan: Plan,
    on: str,
    environment: Mapping[str, str],
    operators: Mapping[str, Any] | None = None,
    *,
    force: bool = False,
    invariants: bool = False,
    control_of: Path | None = None,
) -> Ended:
    """Run the command of `plan` in this folder with `environment`, and leave its recording in `plan.out`.

    `on` says on what: "cpu" (a CUDA script, the reference of a port), "cuda" or "npu"; `operators` what of its
    operators is recorded (`record.operators.wanted`), None for nothing; with `invariants`, `record.invariants`
    watches the run. With `control_of`, a recording of the same run, this one is its control: it begins with those
    weights, and they and what modules give are moved by rounding noise.

    The recording grows in OUT.unfinished and takes the place of OUT when the command has ended, however it did. Raises
    TorchportError where OUT holds something else than a recording, or one without `force` (it stays whole until the new
    one is), or another run writes there.
    """
    out = plan.out
    _refuse_other(out, force)
    with _aside(out) as aside:
        options = session.Options(
            str(aside),
            side=SIDES[on],
            roots=[str(place) for place in plan.list_viewed_folders()],
            save="" if control_of else str(aside / recording.WEIGHTS),
            load=str(control_of.absolute() / recording.WEIGHTS) if control_of else "",
            noise=int(control_of is not None),
            pack=str(aside / recording.BATCHES),
            steps=plan.steps,
            operators=operators,
            invariants=invariants,
        )
        command = plan.launch.command
        recording.begin_recording(
            aside,
            side=options.side,
            command=command,
            device=DEVICES[on],
            seed=options.seed,
            source=plan.describe_source(),
        )
        ended = tee.run_with_tee(
            [shutil.which(command[0], path=environment.get("PATH")) or command[0], *command[1:]],
            {SAME: surroundings.SAME[SAME], **environment, session.VARIABLE: options.to_variable()},
            aside / recording.STDOUT,
            aside / recording.STDERR,
        )
        End(ended.status, ended.seconds).write_to(aside)
        _replace(aside, out)
    return ended


def summarize_recording(out: Path) -> str:
    """What was recorded in `out`, as a line for people."""
    recorded = Recording.from_directory(out)
    steps = f"{recorded.steps} step{'' if recorded.steps == 1 else 's'}" if recorded.steps else "no step of training"
    return f"recorded {steps} in {out}"


def _refuse_other(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise TorchportError(f"--record {out} is a file", hint="Give a folder that is new or empty.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if _is_recording(out):
        if force:
            return
        raise TorchportError(
            f"the folder {out} holds a recording already",
            hint="Give another folder, or --force to replace it once the new one is whole.",
        )
    raise TorchportError(
        f"the folder {out} is not empty, and what it holds is no recording",
        hint="Give --record a folder that is new or empty; only a recording is replaced by the next.",
    )


def _is_recording(out: Path) -> bool:
    with contextlib.suppress(TorchportError):
        return Result.read(out / recording.HEAD).command == recording.COMMAND
    return False


@contextlib.contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """The empty folder OUT.unfinished, for us alone."""
    aside = out.with_name(out.name + UNFINISHED)
    try:
        aside.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise TorchportError(
            f"{aside} cannot be made: {error.strerror}", hint="Give another place with --record."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TorchportError(
                f"another run is recorded in {out}", hint="Wait for it, or give this one a folder of its own."
            ) from None
        for entry in aside.iterdir():  # of a run that was killed
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        yield aside
    finally:
        os.close(descriptor)


def _replace(aside: Path, out: Path) -> None:
    old = out.with_name(out.name + REPLACED)
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        out.rename(old)
    aside.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def has_cuda(devices: Path = Path("/dev")) -> bool:
    """Whether this machine has a GPU of NVIDIA's and the torch of this environment is built for CUDA. Looks at files
    only: asking torch takes seconds."""
    nodes = [*devices.glob("nvidia[0-9]*"), *devices.glob("dxg")]  # dxg: WSL's
    return bool(nodes) and _built_for_cuda()


def _built_for_cuda() -> bool:
    spec = importlib.util.find_spec("torch")  # finds it, does not import it
    if spec is None or spec.origin is None:
        return False
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return False
    lines = [line for line in text.splitlines() if line.startswith("cuda")]
    return any("None" not in line.rpartition("=")[2] for line in lines)
