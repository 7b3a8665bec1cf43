"""What a PyTorch checkpoint holds, read without torch and without running anything that the file names.

A pickle may name any function to be called with any arguments. Here names are never looked up: those that
rebuild tensors become descriptions of tensors, all others inert objects that keep what they were given.
"""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from torchport.checkpoints.tensors import DTYPES, NUMPY, Tensor, Unreadable

MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")  # torch/serialization.py: MAGIC_NUMBER, as pickle writes it
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "uint8",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
DEEPEST = 50  # nested containers that are looked into
MOST_GATHERED = 1 << 24  # elements of a tensor that is not stored in order


class Inert:
    """Stands for an object of a class, or for what a function would return, and does nothing."""

    given: list[object]

    def __new__(cls, *arguments: object, **options: object) -> Inert:
        """Pickles make objects with and without `__init__`, always with this."""
        made = super().__new__(cls)
        made.given = [*arguments, *options.values()]
        return made

    def __init__(self, *arguments: object, **options: object) -> None:
        """What there is to keep was kept."""

    def __setstate__(self, state: object) -> None:
        self.given.append(state)

    def append(self, item: object) -> None:
        """Lists of other classes are filled so."""
        self.given.append(item)

    def extend(self, items: Any) -> None:
        """As `append`."""
        self.given.extend(items)

    def __setitem__(self, key: object, value: object) -> None:
        self.given.append({key: value} if isinstance(key, str | int) else [key, value])

    def add(self, item: object) -> None:
        """Sets of other classes are filled so."""
        self.given.append(item)


class _Storage:
    def __init__(self, dtype: str, count: int, read: Callable[[], bytes], key: str = "", device: str = "") -> None:
        self.dtype, self.count, self.read, self.key, self.device = dtype, count, read, key, device


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTensor(Tensor):
    """A tensor, and where in which storage its elements are: `offset` and `stride` count elements.

    `count` of the storage is what the pickle says of it, in elements; `device` where it was when it was saved.
    """

    storage: str
    stored: int
    offset: int
    stride: tuple[int, ...]
    device: str


class _Reader(pickle.Unpickler):
    """Names nothing and calls nothing but what stands here."""

    def __init__(self, stream: IO[bytes], storage: Callable[[str], Callable[[], bytes]]) -> None:
        super().__init__(stream, encoding="latin1")
        self._storage = storage
        self.storages: dict[str, _Storage] = {}
        self.named: set[tuple[str, str]] = set()  # modules and names in the pickle that stay names

    def find_class(self, module: str, name: str) -> Any:
        if name == "OrderedDict" and module == "collections":
            return OrderedDict
        if name in ("set", "frozenset") and module in ("builtins", "__builtin__"):
            return set if name == "set" else frozenset
        # New functions each time: a pickle may set attributes of what it is given.
        if module == "torch" and name == "Size":
            return lambda items=(): tuple(items)
        if module in ("torch._utils", "torch_npu.utils.storage"):
            if name in ("_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_npu_tensor"):
                return lambda storage, offset, size, stride, *rest: _tensor(storage, offset, size, stride)
            if name == "_rebuild_tensor_v3":  # of dtypes without a storage class of their own
                return lambda storage, offset, size, stride, grad, hooks, dtype, *rest: _tensor(
                    storage, offset, size, stride, getattr(dtype, "__name__", "").removeprefix("torch.")
                )
            if name in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
                return lambda data, *rest: data
        if (module, name) == ("_codecs", "encode"):  # bytes, in pickles of protocol 2
            return lambda text, encoding="latin1": text.encode("latin1") if isinstance(text, str) else b""
        self.named.add((module, name))
        return type(f"{module}.{name}", (Inert,), {})

    def persistent_load(self, identity: Any) -> Any:
        if isinstance(identity, tuple) and identity[:1] == ("module",) and len(identity) > 1:
            return identity[1]  # a class, with its source beside it in the old format
        if not (isinstance(identity, tuple) and len(identity) >= 5 and identity[0] == "storage"):
            return Inert(identity)
        _, kind, key, device, count = identity[:5]
        name = kind.__name__.rpartition(".")[2] if isinstance(kind, type) else str(kind)
        if str(key) not in self.storages:
            dtype = STORAGES.get(name, name)
            self.storages[str(key)] = _Storage(dtype, int(count), self._storage(str(key)), str(key), str(device))
        return self.storages[str(key)]


def read_checkpoint(path: Path) -> dict[str, object]:
    """What a checkpoint or a pickle holds, flat: tensors, numbers and texts by their way in it ("model.fc.weight").

    Raises Unreadable for what is none or is damaged, and OSError. Nothing in the file is imported or called.
    """
    try:
        with open(path, "rb") as stream:
            start = stream.read(16)
            stream.seek(0)
            if start[:4] == b"PK\x03\x04":
                return _read_zip(path)
            if MAGIC in start:
                return flatten_containers(read_old(path, stream)[0])
            return flatten_containers(_Reader(stream, _nowhere).load())
    except (OSError, Unreadable):
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise Unreadable(f"no checkpoint that can be read: {type(error).__name__}: {error}") from error


def _read_zip(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.split("/")[-1] == "data.pkl" and name.count("/") <= 1]
        if not pickles:
            raise Unreadable("an archive without a pickle of torch's")
        prefix = pickles[0].removesuffix("data.pkl")
        if prefix + "byteorder" in names and archive.read(prefix + "byteorder") != b"little":
            raise Unreadable("big-endian numbers")

        def storage(key: str) -> Callable[[], bytes]:
            return lambda: _member(path, f"{prefix}data/{key}")

        with archive.open(pickles[0]) as stream:
            return flatten_containers(_Reader(stream, storage).load())


def _member(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except (KeyError, zipfile.BadZipFile) as error:
        raise Unreadable(f"a storage of the checkpoint is missing or damaged: {error}") from error


def reader_of(stream: IO[bytes]) -> _Reader:
    """For one pickle, whose containers stay as they are and whose tensors are not read (StoredTensor)."""
    return _Reader(stream, _nowhere)


def read_old(path: Path, stream: IO[bytes]) -> tuple[object, dict[str, tuple[int, int]], set[tuple[str, str]]]:
    """The format before torch 1.6: pickles one after the other, then the storages. What they hold, where in the file
    each storage begins and how many bytes it has, and what they name. It raises whatever a damaged one leads to."""
    for _ in range(3):  # magic number, protocol, sizes of C types
        _Reader(stream, _nowhere).load()
    places: dict[str, tuple[int, int]] = {}

    def storage(key: str) -> Callable[[], bytes]:
        def read() -> bytes:
            if key not in places:
                raise Unreadable("a storage of the checkpoint is missing")
            with open(path, "rb") as again:
                again.seek(places[key][0])
                return again.read(places[key][1])

        return read

    reader = _Reader(stream, storage)
    found = reader.load()
    for key in _Reader(stream, _nowhere).load():
        count = int.from_bytes(stream.read(8), "little")
        size = count * DTYPES[reader.storages[key].dtype][0]
        places[key] = (stream.tell(), size)
        stream.seek(size, 1)
    return found, places, reader.named


def _nowhere(key: str) -> Callable[[], bytes]:
    def read() -> bytes:
        raise Unreadable(f"the pickle names a storage {key} that is not there")

    return read


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, dtype: str = "") -> object:
    if not isinstance(storage, _Storage):
        return Inert(storage, offset, size, stride)
    dtype = dtype or storage.dtype
    shape, steps, first = tuple(map(int, size)), tuple(map(int, stride)), int(offset)

    def read() -> bytes:
        width, data = DTYPES.get(dtype, (0, ""))[0], storage.read()
        if not width:
            if len(shape) == 0 or 0 in shape:
                return data
            return data  # of an unknown dtype: all that the storage has
        last = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        if 0 in shape:
            return b""
        if first < 0 or min(steps, default=0) < 0 or (last + 1) * width > len(data):
            raise Unreadable("a tensor reaches beyond its storage")
        in_order, expected = True, 1
        for n, step in zip(reversed(shape), reversed(steps), strict=True):
            in_order &= n == 1 or step == expected
            expected *= n
        if in_order:
            return data[first * width : (first + expected) * width]
        if expected > MOST_GATHERED:
            raise Unreadable("a large tensor that is not stored in order")
        ways = [range(0, n * step, step) if step else [0] * n for n, step in zip(shape, steps, strict=True)]
        places = (first + sum(way) for way in itertools.product(*ways))
        return b"".join(data[place * width : (place + 1) * width] for place in places)

    return StoredTensor(dtype, shape, read, storage.key, storage.count, first, steps, storage.device)


def flatten_containers(value: object) -> dict[str, object]:
    """Tensors, numbers, texts and bytes in nested containers by the way to them."""
    return dict(_leaves(value, "", 0, set()))


def _leaves(value: object, way: str, depth: int, above: set[int]) -> Iterator[tuple[str, object]]:
    if id(value) in above:
        return  # it holds itself
    if depth > DEEPEST:
        raise Unreadable("containers nested too deeply")
    items: list[tuple[object, object]]
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    elif isinstance(value, set | frozenset):
        items = list(enumerate(sorted(value, key=str)))
    elif isinstance(value, Inert):
        array = _array(value)
        if array is not None:
            yield way, array
            return
        yield f"{way} (class)".strip(), type(value).__name__
        items = list(enumerate(value.given))
    else:
        yield way, f"({value.__name__})" if isinstance(value, type) else value
        return
    inner = above | {id(value)}
    for name, item in items:
        yield from _leaves(item, f"{way}.{name}" if way else str(name), depth + 1, inner)


def _array(value: Inert) -> Tensor | None:
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
