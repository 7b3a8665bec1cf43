"""Read one checkpoint file and print what it holds as JSON: the program that `guarded` runs within limits.

Whatever a hostile file makes of this process stays in it. Nothing is imported or called that the file names
(`pickled`), nothing is unpacked, and the bytes of tensors are not looked at.
"""

from __future__ import annotations

import gc
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from torchport.checkpoints import distributed
from torchport.checkpoints.contents import Contents, Piece, Stored, to_json, validate_piece
from torchport.checkpoints.pickled import MAGIC, Inert, StoredTensor, read_old, reader_of
from torchport.checkpoints.tensors import SAFETENSORS, Unreadable

MOST_NODES = 1 << 20  # values in nested containers: shared ones may stand for any number
MOST_TEXT = 200  # characters of a value that is shown
LONGEST_NAME = 800  # characters
MOST_PICKLE = 1 << 28  # bytes
OTHER_SAFETENSORS = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "C64": "complex64",
}  # which `tensors` does not compare
DEEPEST = 12  # containers in containers, in which tensors are looked for
# Modules of which no checkpoint has a reason to name anything, and such functions among Python's own.
ATTACKING = {
    *("ctypes", "ftplib", "importlib", "marshal", "multiprocessing", "nt", "os", "pdb", "pip", "posix", "pty", "runpy"),
    *("shutil", "smtplib", "socket", "subprocess", "sys", "telnetlib", "timeit", "urllib", "webbrowser"),
}
BUILTINS = ("builtins", "__builtin__")
# Not getattr, by which newer Pythons pickle the members of enumerations.
EXECUTING = {"__import__", "apply", "breakpoint", "compile", "eval", "exec", "execfile", "input", "open"}
Place = tuple[str, int, int, int | None]


def parse_checkpoint(path: Path) -> Contents:
    """What the file or folder holds. Raises Unreadable and OSError, and anything for a damaged pickle."""
    if path.is_dir():
        return distributed.read_distributed_checkpoint(path, _unpickled, _archive)
    with open(path, "rb") as stream:
        start = stream.read(512)
        stream.seek(0)
        if start[:4] == b"PK\x03\x04":
            tree, places = _archive(path, 0, path.stat().st_size)
            return _contents(path, "torch.save", tree, places)
        if MAGIC in start[:16]:
            tree, found, named = read_old(path, stream)
            _refuse_calls(named)
            size = path.stat().st_size
            if any(begin + length > size for begin, length in found.values()):
                raise Unreadable("the file ends inside a tensor")
            old = {key: (str(path), begin, length, None) for key, (begin, length) in found.items()}
            return _contents(path, "torch.save before torch 1.6", tree, old)
        if start[8:9] == b"{":
            return _safetensors(path, stream)
        if start[:4] == b"IMOD":
            raise Unreadable(
                "an OM: ATC has compiled it for a chip, it runs on hardware alone and gives no weights back"
            )
        if start[257:262] == b"ustar":
            raise Unreadable("a tar archive, of torch before 0.1.10 or packed by hand: unpack it, or save it again")
        if start[:1] == b"\x80":
            return _contents(path, "pickle", _unpickled(stream), {})
    raise Unreadable("neither a checkpoint of torch.save nor a .safetensors file")


def _unpickled(stream: IO[bytes]) -> object:
    reader = reader_of(stream)
    tree = reader.load()
    _refuse_calls(reader.named)
    return tree


def _refuse_calls(named: set[tuple[str, str]]) -> None:
    """A checkpoint that would do something to the machine of who loads it is said to be one, whatever else it holds."""
    for module, name in sorted(named):
        places = {module.partition(".")[0], *name.split(".")[:-1]}  # a name may lead on: serialization, "os.system"
        if places & ATTACKING or (module in BUILTINS and name in EXECUTING):
            raise Unreadable(
                f"it names {module[:80]}.{name[:80]}, which torch.load(weights_only=False) would call. No checkpoint "
                "of a model does: do not load it"
            )


def _archive(path: Path, begin: int, length: int) -> tuple[object, dict[str, Place]]:
    """What torch.save has packed into these bytes of a file, and where each storage is."""
    with open(path, "rb") as whole:
        view = whole if (begin, length) == (0, path.stat().st_size) else _Slice(whole, begin, length)
        with zipfile.ZipFile(view) as archive:
            members = archive.infolist()
            names = {member.filename for member in members}
            if len(names) < len(members):
                raise Unreadable("an archive that has two members of one name")
            pickles = [name for name in names if name.split("/")[-1] == "data.pkl" and name.count("/") <= 1]
            if len(pickles) != 1:
                raise Unreadable("an archive without a pickle of torch's")
            prefix = pickles[0].removesuffix("data.pkl")
            if f"{prefix}constants.pkl" in names:
                raise Unreadable(
                    "a TorchScript archive, whose weights are reached by running its code: save the state_dict() of "
                    "the model that was scripted"
                )
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED or member.file_size > member.compress_size:
                    raise Unreadable(f"{member.filename[:80]} in it is compressed, which torch.save never does")
            if archive.getinfo(pickles[0]).file_size > MOST_PICKLE:
                raise Unreadable("a pickle of more than 256 MiB")
            if f"{prefix}byteorder" in names and archive.read(f"{prefix}byteorder")[:16] != b"little":
                raise Unreadable("big-endian numbers")
            tree = _unpickled(io.BytesIO(archive.read(pickles[0])))
        places: dict[str, Place] = {}
        for member in members:
            way, _, key = member.filename.rpartition("/")
            if way == f"{prefix}data":
                start = begin + _content(view, member)
                if start + member.file_size > begin + length:
                    raise Unreadable("the file ends inside a tensor")
                places[key] = (str(path), start, member.file_size, member.CRC)
    return tree, places


def _content(stream: Any, member: zipfile.ZipInfo) -> int:
    """Where the bytes of an uncompressed member begin: its local header has a name and an extra field of its own."""
    stream.seek(member.header_offset)
    head = stream.read(30)
    if head[:4] != b"PK\x03\x04":
        raise Unreadable("a damaged archive: a member is not where its directory says")
    return member.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


class _Slice(io.RawIOBase):
    """Some bytes of a file as a file."""

    def __init__(self, stream: IO[bytes], begin: int, length: int) -> None:
        super().__init__()
        self._stream, self._begin, self._length, self._at = stream, begin, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._length)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._length - self._at)
        count = left if size is None or size < 0 else min(size, left)
        self._stream.seek(self._begin + self._at)
        data = self._stream.read(count)
        self._at += len(data)
        return data


def _safetensors(path: Path, stream: IO[bytes]) -> Contents:
    size = path.stat().st_size
    length = int.from_bytes(stream.read(8), "little")
    if length > min(size - 8, MOST_PICKLE):
        raise Unreadable("a .safetensors file that ends inside its header")
    try:
        header = json.loads(stream.read(length))
        metadata = header.pop("__metadata__", {})
        found: dict[str, Stored] = {}
        for name, row in header.items():
            begin, end = map(int, row["data_offsets"])
            dtype = SAFETENSORS.get(row["dtype"]) or OTHER_SAFETENSORS.get(row["dtype"], str(row["dtype"]))
            shape = tuple(map(int, row["shape"]))
            if not 0 <= begin <= end <= size - 8 - length:
                raise Unreadable(f"tensor {name[:80]} lies outside the file")
            piece = Piece(str(path), 8 + length + begin, end - begin, 0, _rows(shape), (0,) * len(shape), shape)
            found[name] = Stored(dtype, shape, (validate_piece(name[:80], dtype, piece),))
            if found[name].nbytes != end - begin:
                raise Unreadable(f"tensor {name[:80]} has other bytes than its shape says")
        values = {f"metadata.{name}": str(value)[:MOST_TEXT] for name, value in metadata.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"a damaged .safetensors file: {str(error)[:MOST_TEXT]}") from error
    return Contents(path, "safetensors", {"": found}, values)


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    stride, step = [], 1
    for n in reversed(shape):
        stride.append(step)
        step *= n
    return tuple(reversed(stride))


def _contents(path: Path, kind: str, tree: object, places: Mapping[str, Place]) -> Contents:
    parts: dict[str, dict[str, Stored]] = {}
    values: dict[str, object] = {}
    objects: dict[str, str] = {}
    for way, item in _leaves(tree):
        name = ".".join(map(str, way))
        if isinstance(item, StoredTensor):
            parent = ".".join(map(str, way[:-1]))
            parts.setdefault(parent, {})[str(way[-1]) if way else ""] = _stored(name, item, places)
        elif isinstance(item, Inert):
            objects[name] = type(item).__name__[:MOST_TEXT]
        elif isinstance(item, str | int | float | bool | None):
            values[name] = item[:MOST_TEXT] if isinstance(item, str) else item
        else:
            values[name] = type(item).__name__
    return Contents(path, kind, parts, values, objects)


def _stored(name: str, tensor: StoredTensor, places: Mapping[str, Place]) -> Stored:
    if tensor.storage not in places:
        raise Unreadable(f"the bytes of tensor {name[:80]} are missing")
    file, start, length, crc = places[tensor.storage]
    piece = Piece(file, start, length, tensor.offset, tensor.stride, (0,) * len(tensor.shape), tensor.shape, crc)
    return Stored(tensor.dtype, tensor.shape, (validate_piece(name[:80], tensor.dtype, piece),), tensor.device[:40])


def _leaves(tree: object) -> Iterator[tuple[tuple[object, ...], object]]:
    """What is not a container, by the way to it. Lists of numbers count as one value."""
    waiting: list[tuple[tuple[object, ...], object]] = [((), tree)]
    for _ in range(MOST_NODES):
        if not waiting:
            return
        way, item = waiting.pop()
        if isinstance(item, Mapping):
            inner = list(item.items())
        elif isinstance(item, list | tuple):
            inner = list(enumerate(item))
            if not any(isinstance(value, Mapping | list | tuple | StoredTensor | Inert) for _, value in inner):
                yield way, f"{len(inner)} values"
                continue
        else:
            yield way, item
            continue
        if len(way) >= DEEPEST:
            raise Unreadable("containers nested too deeply")
        waiting.extend(((*way, str(key)[:LONGEST_NAME]), value) for key, value in reversed(inner))
    raise Unreadable(f"more than {MOST_NODES} values")


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
