"""Folders of `torch.distributed.checkpoint`: a pickle `.metadata` says in which file each block of each tensor is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchport.checkpoints.contents import Contents, Piece, Stored, validate_piece
from torchport.checkpoints.pickled import Inert, StoredTensor
from torchport.checkpoints.saved import read_saved
from torchport.checkpoints.tensors import Unreadable

METADATA = ".metadata"
MOST_METADATA = 1 << 26  # bytes


def read_distributed_checkpoint(folder: Path) -> Contents:
    """The tensors of the folder, and their blocks. Raises Unreadable and OSError, and anything for a damaged pickle."""
    path = folder / METADATA
    if not path.is_file():
        raise Unreadable(
            "a folder without .metadata (torch.distributed.checkpoint) and without an index of shards (*.index.json)"
        )
    if path.stat().st_size > MOST_METADATA:
        raise Unreadable(".metadata of more than 64 MiB")
    saved = read_saved(path)
    saved.refuse_callables()
    whole = _state(saved.tree)
    described, stored = whole["state_dict_metadata"], whole["storage_data"]
    blocks: dict[str, dict[tuple[int, ...], Any]] = {}
    for index, info in stored.items():
        row = _state(index)
        offsets = row.get("offset")
        blocks.setdefault(str(row["fqn"]), {})[tuple(offsets) if offsets is not None else ()] = _state(info)
    tensors: dict[str, Stored] = {}
    values: dict[str, object] = {}
    for name, said in described.items():
        row = _state(said)
        if "chunks" not in row:
            values[str(name)] = "pickled"
            continue
        shape = tuple(map(int, row["size"]))
        found = blocks.get(str(name), {})
        pieces: list[Piece] = []
        dtype = device = ""
        for chunk in row["chunks"]:
            part = _state(chunk)
            starts, sizes = tuple(map(int, part["offsets"])), tuple(map(int, part["sizes"]))
            info = found.get(starts, found.get(()) if len(row["chunks"]) == 1 else None)
            if info is None:
                raise Unreadable(f"a block of tensor {str(name)[:80]} is missing")
            piece, dtype, device = _piece(folder, str(name), info, starts, sizes)
            pieces.append(piece)
        _covered(str(name), shape, pieces)
        tensors[str(name)] = Stored(dtype, shape, tuple(pieces), device)
    return Contents(folder, "torch.distributed.checkpoint", {"": tensors}, values)


def _piece(
    folder: Path, name: str, info: Mapping[str, Any], starts: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[Piece, str, str]:
    file = str(info["relative_path"])
    if file != Path(file).name or (folder / file).is_symlink():
        raise Unreadable(f"tensor {name[:80]} is said to be in {file[:80]!r}, outside the folder")
    if info.get("transform_descriptors"):
        raise Unreadable("blocks that were compressed, which are not read")
    saved = read_saved(folder / file, int(info["offset"]), int(info["length"]))
    saved.refuse_callables()
    tensor = saved.tree
    if not isinstance(tensor, StoredTensor) or tensor.shape != sizes or tensor.storage not in saved.places:
        raise Unreadable(f"the block of tensor {name[:80]} is another than .metadata says")
    piece = dataclasses.replace(saved.locate(name, tensor), starts=starts)
    return validate_piece(name[:80], tensor.dtype, piece), tensor.dtype, tensor.device[:40]


def _covered(name: str, shape: tuple[int, ...], pieces: list[Piece]) -> None:
    """Blocks are inside the tensor, and have as many elements as it: a huge shape of a small file is refused."""
    elements = 0
    for piece in pieces:
        for start, size, n in zip(piece.starts, piece.sizes, shape, strict=True):
            if start < 0 or start + size > n:
                raise Unreadable(f"a block of tensor {name[:80]} lies outside it")
        elements += math.prod(piece.sizes)
    whole = math.prod(shape)
    if elements != whole:
        raise Unreadable(f"tensor {name[:80]} has {whole} elements, and its blocks {elements}")


def _state(value: object) -> Mapping[str, Any]:
    """The attributes of an object of a class that was not made."""
    if isinstance(value, Inert):
        for given in value.given:
            if isinstance(given, Mapping):
                return given
            if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0] or given[1], Mapping):
                return {**(given[0] or {}), **(given[1] or {})}
    raise Unreadable(".metadata of another form than torch.distributed.checkpoint writes")
