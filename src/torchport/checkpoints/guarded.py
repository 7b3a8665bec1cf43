"""Read a checkpoint in a process of its own, which may take so much memory and time and no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torchport.checkpoints.contents import Contents, Stored, from_json
from torchport.errors import TorchportError

MEMORY = 448 << 20  # bytes of address space, all of Python's among them
# Of processor time, 2 with the start of a process; and a second more for each such number of bytes in the file.
SECONDS = 1.8
GROWTH = 1 << 26
WALL = 60  # seconds: a machine that has other work, a file on a slow disk
ANSWER = 32 << 20  # bytes of JSON: 100,000 tensors
HOLES = 8  # a file system that compresses makes weights smaller, and never by so much
INDEX = ".index.json"
MOST_SHARDS = 10_000
HINT = "Check that it was copied whole (size, sha256), or save it again: torch.save(model.state_dict(), FILE)."


def read_in_subprocess(path: Path) -> Contents:
    """What the checkpoint holds: a file, a folder of shards, their index or a folder of torch.distributed.checkpoint.

    Raises TorchportError for what is none, is damaged or takes more than its limits to read.
    """
    if not path.exists():
        raise TorchportError(f"there is no {path}", hint="Give the file or folder that the training has left.")
    if path.is_dir():
        found = sorted(path.glob(f"*{INDEX}"))
        if len(found) > 1:
            raise TorchportError(
                f"{path} holds several checkpoints: {', '.join(file.name for file in found)}",
                hint="Give one of these files.",
            )
        if found:
            return _shards(found[0])
    if path.name.endswith(INDEX):
        return _shards(path)
    if not path.is_file() and not path.is_dir():
        raise TorchportError(f"{path} is no file and no folder", hint="Give a file that the training has left.")
    return from_json(path, _ask(path))


def _ask(path: Path) -> Any:
    size = path.stat().st_size if path.is_file() else 0
    for file in [path] if path.is_file() else sorted(path.iterdir()):
        _refuse_holes(file)
    seconds = min(SECONDS + size // GROWTH, WALL)
    with tempfile.TemporaryFile() as answer:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM, str(Path(__file__).parents[2]), str(seconds), str(path)],
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            start_new_session=True,
        )
        try:
            status = child.wait(WALL)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        size = answer.tell() if status is None else answer.seek(0, os.SEEK_END)
        answer.seek(0)
        if status != 0 or not size:
            raise TorchportError(
                f"{path} was not read: it takes more than {seconds} s of processor time, {MEMORY >> 20} MiB or "
                f"{ANSWER >> 20} MiB of names, or ends the reader (status {status})",
                hint=HINT,
            )
        value = json.loads(answer.read())
    if "unreadable" in value:
        raise TorchportError(f"{path} is no checkpoint that can be read: {value['unreadable']}", hint=HINT)
    return value


def _refuse_holes(file: Path) -> None:
    """A file that is mostly holes claims any size and costs nothing to send; reading it would fill the memory."""
    said = file.stat()
    held = said.st_blocks * 512  # 0 where a file system does not tell
    if said.st_size > GROWTH and 0 < held < said.st_size // HOLES:
        raise TorchportError(
            f"{file} says that it has {said.st_size:,} bytes, and {held:,} are on the disk: the rest are holes",
            hint="It was not copied whole: copy it again.",
        )


def _shards(index: Path) -> Contents:
    """The files that an index of Hugging Face's form names, each read by itself."""
    try:
        if index.stat().st_size > ANSWER:
            raise ValueError("it has more than 32 MiB")
        rows = json.loads(index.read_bytes())["weight_map"]
        names = {str(name): str(file) for name, file in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TorchportError(f"{index} is no index of shards: {error}", hint=HINT) from error
    files = sorted(set(names.values()))
    if len(files) > MOST_SHARDS:
        raise TorchportError(f"{index} names {len(files)} files", hint=HINT)
    tensors: dict[str, Stored] = {}
    for file in files:
        place = index.parent / file
        if file != Path(file).name or (place.is_symlink() and not _beside(place)):
            raise TorchportError(
                f"{index} names {file[:80]!r}, which is outside its folder", hint="Put the shards beside their index."
            )
        if not place.is_file():
            raise TorchportError(
                f"{index} names {file[:80]}, which is not there", hint="Copy every shard into the folder."
            )
        held = from_json(place, _ask(place)).parts.get("", {})
        wanted = [name for name, where in names.items() if where == file]
        if missing := [name for name in wanted if name not in held]:
            raise TorchportError(f"{place} lacks {missing[0][:80]}, which {index.name} says it has", hint=HINT)
        tensors |= {name: held[name] for name in wanted}
    return Contents(index, f"{len(files)} shards", {"": tensors})


def _beside(link: Path) -> bool:
    """Hugging Face's cache has links to files two folders up; a link elsewhere is somebody's trick or mistake."""
    return link.resolve().is_relative_to(link.parent.resolve().parents[1])


# Limits are set in the child before anything of ours is imported there; -I -S: no site-packages, nothing of the user's.
PROGRAM = f"""
import resource, signal, sys
def limit(what, most):
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))
where = sys.argv.pop(1)
limit(resource.RLIMIT_AS, {MEMORY})
seconds = float(sys.argv.pop(1))
limit(resource.RLIMIT_CPU, int(seconds) + 1)
signal.setitimer(signal.ITIMER_PROF, seconds)
limit(resource.RLIMIT_FSIZE, {ANSWER})
limit(resource.RLIMIT_CORE, 0)
sys.path.insert(0, where)
from torchport.checkpoints.reading import main
main()
"""
