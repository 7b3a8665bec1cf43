"""Weights as a `.safetensors` file, written tensor by tensor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from torchport.checkpoints.contents import Stored, read_tensor_bytes
from torchport.checkpoints.safetensors import DTYPES
from torchport.checkpoints.tensors import Unreadable
from torchport.errors import TorchportError
from torchport.findings import opened_atomically

ENDING = ".safetensors"
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def require_target(path: Path, force: bool) -> None:
    """Raise TorchportError where `path` cannot be written, or exists and `force` is not given."""
    if path.is_dir():
        raise TorchportError(f"{path} is a folder", hint="Give a file name.")
    if not path.parent.is_dir():
        raise TorchportError(f"there is no folder {path.parent}", hint="Make it first.")
    if path.exists() and not force:
        raise TorchportError(f"{path} exists", hint="Give another name, or --force to replace it.")


def write_safetensors(
    path: Path, tensors: Mapping[str, Stored], progress: Callable[[str], None] = lambda text: None
) -> None:
    """Store `tensors` at `path`; a failing or interrupted write leaves nothing. Raises TorchportError and OSError."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, stored in tensors.items():
        if stored.dtype not in NAMES:
            raise TorchportError(f"tensor {name} has the dtype {stored.dtype}, which .safetensors has no name for")
        header[name] = {
            "dtype": NAMES[stored.dtype],
            "shape": list(stored.shape),
            "data_offsets": [at, at + stored.nbytes],
        }
        at += stored.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with opened_atomically(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for number, (name, stored) in enumerate(tensors.items()):
            progress(f"tensor {number + 1} of {len(tensors)}")
            try:
                data = read_tensor_bytes(stored)
            except (Unreadable, OSError) as error:
                raise TorchportError(f"tensor {name} cannot be read: {error}") from error
            stream.write(data)
