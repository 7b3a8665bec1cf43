"""What a PyTorch checkpoint holds, read without torch and without running anything that the file names.

A pickle may name any function to be called with any arguments. Here names are never looked up: those that
rebuild tensors become descriptions of tensors, all others inert objects that keep what they were given.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from torchport.checkpoints.tensors import Unreadable

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


class Inert:
    """Stands for an object of a class, or for what a function would return, and does nothing."""

    place: tuple[str, str] | None = None  # module and name
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
    def __init__(self, dtype: str, key: str, device: str) -> None:
        self.dtype, self.key, self.device = dtype, key, device


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor, and where in which storage its elements are: `offset` and `stride` count elements.

    `device` is where it was when it was saved.
    """

    dtype: str
    shape: tuple[int, ...]
    storage: str
    offset: int
    stride: tuple[int, ...]
    device: str


class Reader(pickle.Unpickler):
    """Names nothing and calls nothing but what stands here."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream, encoding="latin1")
        self.storages: dict[str, _Storage] = {}
        self.named: set[tuple[str, str]] = set()  # modules and names in the pickle that stay names
        self.nested: list[bytes] = []  # what torch.storage._load_from_bytes would load

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
        if module in ("builtins", "__builtin__") and name == "getattr":  # members of enumerations, methods
            return lambda owner, attribute, *rest: self._lead_on(owner, attribute)
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return lambda data: self._keep_nested(data)
        return self._name(module, name)

    def _name(self, module: str, name: str) -> type[Inert]:
        self.named.add((module, name))
        return type(f"{module}.{name}", (Inert,), {"place": (module, name)})

    def _lead_on(self, owner: object, attribute: object) -> object:
        """A name that is reached from another one is a name, too; an attribute of an object stays inert."""
        if isinstance(owner, type) and issubclass(owner, Inert) and owner.place:
            return self._name(owner.place[0], f"{owner.place[1]}.{attribute}")
        return self._name("builtins", f"object.{attribute}")(owner)

    def _keep_nested(self, data: object) -> Inert:
        if isinstance(data, bytes):
            self.nested.append(data)
        return self._name("torch.storage", "_load_from_bytes")(data)

    def persistent_load(self, identity: Any) -> Any:
        if isinstance(identity, tuple) and identity[:1] == ("module",) and len(identity) > 1:
            return identity[1]  # a class, with its source beside it in the old format
        if not (isinstance(identity, tuple) and len(identity) >= 5 and identity[0] == "storage"):
            return Inert(identity)
        _, kind, key, device = identity[:4]
        name = kind.__name__.rpartition(".")[2] if isinstance(kind, type) else str(kind)
        if str(key) not in self.storages:
            dtype = STORAGES.get(name, name)
            self.storages[str(key)] = _Storage(dtype, str(key), str(device))
        return self.storages[str(key)]


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, dtype: str = "") -> object:
    if not isinstance(storage, _Storage):
        return Inert(storage, offset, size, stride)
    shape, steps = tuple(map(int, size)), tuple(map(int, stride))
    return StoredTensor(dtype or storage.dtype, shape, storage.key, int(offset), steps, storage.device)


def walk_containers(
    tree: object, open_item: Callable[[object], Iterable[tuple[object, object]] | None], deepest: int, most: int
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each item that `open_item` gives no names and items of, in order, by the way to it; none twice on one way.

    Raises Unreadable for more than `deepest` containers in each other and for more than `most` items.
    """
    waiting: list[tuple[tuple[str, ...], object, frozenset[int]]] = [((), tree, frozenset())]
    for _ in range(most):
        if not waiting:
            return
        way, item, above = waiting.pop()
        inner = open_item(item)
        if inner is None:
            yield way, item
            continue
        if id(item) in above:
            continue  # it holds itself
        if len(way) >= deepest:
            raise Unreadable("containers nested too deeply")
        within = above | {id(item)}
        waiting.extend(((*way, str(name)), value, within) for name, value in reversed(list(inner)))
    raise Unreadable(f"more than {most} values")
