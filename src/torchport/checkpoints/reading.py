"""Read one checkpoint file and print what it holds as JSON: the program that `guarded` runs within limits.

Whatever a hostile file makes of this process stays in it. Nothing is imported or called that the file names
(`pickled`), nothing is unpacked, and the bytes of tensors are not looked at.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchport.checkpoints.contents import Contents, Stored, to_json
from torchport.checkpoints.distributed import read_distributed_checkpoint
from torchport.checkpoints.pickled import MAGIC, Inert, StoredTensor, walk_containers
from torchport.checkpoints.safetensors import read_header
from torchport.checkpoints.saved import Saved, read_saved
from torchport.checkpoints.tensors import Unreadable

MOST_NODES = 1 << 20  # values in nested containers: shared ones may stand for any number
MOST_TEXT = 200  # characters of a value that is shown
LONGEST_NAME = 800  # characters
DEEPEST = 12  # containers in containers, in which tensors are looked for


def parse_checkpoint(path: Path) -> Contents:
    """What the file or folder holds. Raises Unreadable and OSError, and anything for a damaged pickle."""
    if path.is_dir():
        return read_distributed_checkpoint(path)
    with open(path, "rb") as stream:
        start = stream.read(512)
    if start[8:9] == b"{":
        tensors, metadata = read_header(path)
        values = {f"metadata.{name}": str(value)[:MOST_TEXT] for name, value in metadata.items()}
        return Contents(path, "safetensors", {"": tensors}, values)
    if start[:4] == b"IMOD":
        raise Unreadable("an OM: ATC has compiled it for a chip, it runs on hardware alone and gives no weights back")
    if start[257:262] == b"ustar":
        raise Unreadable("a tar archive, of torch before 0.1.10 or packed by hand: unpack it, or save it again")
    if start[:4] != b"PK\x03\x04" and start[:1] != b"\x80" and MAGIC not in start[:16]:
        raise Unreadable("neither a checkpoint of torch.save nor a .safetensors file")
    saved = read_saved(path)
    if saved.scripted:
        raise Unreadable(
            "a TorchScript archive, whose weights are reached by running its code: save the state_dict() of "
            "the model that was scripted"
        )
    saved.refuse_callables()
    return _list_contents(path, saved)


def _list_contents(path: Path, saved: Saved) -> Contents:
    parts: dict[str, dict[str, Stored]] = {}
    values: dict[str, object] = {}
    objects: dict[str, str] = {}
    for way, item in walk_containers(saved.tree, _open, DEEPEST, MOST_NODES):
        steps = [step[:LONGEST_NAME] for step in way]
        name = ".".join(steps)
        if isinstance(item, StoredTensor):
            parts.setdefault(".".join(steps[:-1]), {})[steps[-1] if steps else ""] = saved.get_stored(name, item)
        elif isinstance(item, Inert):
            objects[name] = type(item).__name__[:MOST_TEXT]
        elif isinstance(item, list | tuple):
            values[name] = f"{len(item)} values"
        elif isinstance(item, str | int | float | bool | None):
            values[name] = item[:MOST_TEXT] if isinstance(item, str) else item
        else:
            values[name] = (item if isinstance(item, type) else type(item)).__name__[:MOST_TEXT]
    return Contents(path, saved.format, parts, values, objects)


def _open(item: object) -> Iterable[tuple[object, object]] | None:
    """Lists of numbers count as one value."""
    if isinstance(item, dict):
        return item.items()
    if isinstance(item, list | tuple) and any(isinstance(x, dict | list | tuple | StoredTensor | Inert) for x in item):
        return enumerate(item)
    return None


def main() -> int:
    """Print the JSON of what `sys.argv[1]` holds, or of why it is not read."""
    gc.disable()  # everything is kept until the end: half of the time
    path = Path(sys.argv[1])
    answer: dict[str, Any]
    try:
        answer = to_json(parse_checkpoint(path))
    except Unreadable as error:
        answer = {"unreadable": str(error)}
    except OSError as error:
        answer = {"unreadable": error.strerror or str(error)}
    except MemoryError:
        answer = {"unreadable": "it takes more memory to read than a checkpoint of its kind needs"}
    except Exception as error:  # a damaged pickle or archive raises anything
        answer = {"unreadable": f"damaged: {type(error).__name__}: {str(error)[:MOST_TEXT]}"}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # what a hostile file has built is not taken apart


if __name__ == "__main__":
    main()
