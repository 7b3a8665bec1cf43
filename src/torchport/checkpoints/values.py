"""The values of a file by name, to be compared: of a checkpoint, of the objects in a pickle, of JSON.

The files are what the user's own script has left. No name in them is refused, and none is looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torchport.checkpoints.contents import SIZES, read_storage
from torchport.checkpoints.pickled import Inert, StoredTensor, walk_containers
from torchport.checkpoints.safetensors import read_header
from torchport.checkpoints.saved import Saved, read_saved
from torchport.checkpoints.tensors import NUMPY, Tensor, Unreadable

DEEPEST = 50  # containers in containers
MOST_NODES = 1 << 24
MOST_REPEATED = 1 << 26  # bytes of a tensor that torch.expand has made of fewer


def read_checkpoint(path: Path) -> dict[str, object]:
    """The values of a checkpoint or a pickle, flat: tensors, numbers and texts by their way in it ("model.fc.weight").

    Raises Unreadable for what is none or is damaged, and OSError. Nothing in the file is imported or called.
    """
    try:
        saved = read_saved(path)
        flat = flatten_containers(saved.tree)
        return {
            name: _get_tensor(saved, name, value) if isinstance(value, StoredTensor) else value
            for name, value in flat.items()
        }
    except (OSError, Unreadable):
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise Unreadable(f"no checkpoint that can be read: {type(error).__name__}: {error}") from error


def read_safetensors(path: Path) -> dict[str, object]:
    """The tensors of a `.safetensors` file by name, and its metadata. Raises Unreadable and OSError."""
    tensors, metadata = read_header(path)
    said = {f"metadata {name}": value for name, value in metadata.items()}
    return {**said, **{name: stored.to_tensor() for name, stored in tensors.items()}}


def flatten_containers(value: object) -> dict[str, object]:
    """Tensors, numbers, texts and bytes in nested containers by the way to them. Raises Unreadable."""
    flat: dict[str, object] = {}
    for way, item in walk_containers(value, _open, DEEPEST, MOST_NODES):
        if isinstance(item, Inert):
            item = _read_array(item)
        flat[".".join(way)] = f"({item.__name__})" if isinstance(item, type) else item
    return flat


def _open(item: object) -> Iterable[tuple[object, object]] | None:
    if isinstance(item, dict):
        return item.items()
    if isinstance(item, list | tuple):
        return enumerate(item)
    if isinstance(item, set | frozenset):
        return enumerate(sorted(item, key=str))
    if isinstance(item, Inert) and _read_array(item) is None:
        return [("(class)", type(item).__name__), *enumerate(item.given)]
    return None


def _get_tensor(saved: Saved, name: str, tensor: StoredTensor) -> Tensor:
    if tensor.dtype in SIZES:
        return saved.get_stored(name, tensor, MOST_REPEATED).to_tensor()
    piece = saved.locate(name, tensor)  # of an unknown dtype, which is compared bit by bit: all that the storage has
    return Tensor(tensor.dtype, tensor.shape, lambda: read_storage(piece))


def _read_array(value: Inert) -> Tensor | None:
    """A numpy array or scalar among pickled objects."""
    function = type(value).__name__.rpartition(".")[2]
    given = value.given
    if function == "_reconstruct" and given and isinstance(given[-1], tuple) and len(given[-1]) == 5:
        _, shape, kind, fortran, data = given[-1]
    elif function == "scalar" and len(given) == 2:
        (kind, data), shape, fortran = given, (), False
    else:
        return None
    dtype = NUMPY.get(str(kind.given[0])) if isinstance(kind, Inert) and kind.given else None
    if dtype is None or not isinstance(data, bytes) or not isinstance(shape, tuple):
        return None
    return Tensor(dtype, tuple(reversed(shape)) if fortran else shape, lambda: data)
