"""Files of torch.save: the objects of its pickle, and where in the file the bytes of each tensor are."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from torchport.checkpoints.callables import refuse_callables
from torchport.checkpoints.contents import SIZES, Piece, Stored, validate_piece
from torchport.checkpoints.pickled import MAGIC, Reader, StoredTensor
from torchport.checkpoints.tensors import Unreadable

MOST_PICKLE = 1 << 28  # bytes
# Bytes of an element, also in the storages of quantized tensors, which are passed over.
STORED_SIZES = SIZES | {"QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4, "QUInt4x2Storage": 1}
Place = tuple[str, int, int, int | None]  # file, first byte, bytes, checksum


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """`places` are the storages of `tree`; `named` and `nested` as the pickles' `Reader` has found them."""

    format: str
    tree: object
    places: Mapping[str, Place]
    named: set[tuple[str, str]]
    nested: list[bytes]
    scripted: bool = False  # an archive of TorchScript

    def locate(self, name: str, tensor: StoredTensor) -> Piece:
        """Where the elements of a tensor of the tree are. Raises Unreadable."""
        if tensor.storage not in self.places:
            raise Unreadable(f"the bytes of tensor {name[:80]} are missing")
        file, start, length, crc = self.places[tensor.storage]
        return Piece(file, start, length, tensor.offset, tensor.stride, (0,) * len(tensor.shape), tensor.shape, crc)

    def get_stored(self, name: str, tensor: StoredTensor, repeated: int = 0) -> Stored:
        """A tensor of the tree, which may have `repeated` bytes by strides of 0. Raises Unreadable."""
        piece = validate_piece(name[:80], tensor.dtype, self.locate(name, tensor), repeated)
        return Stored(tensor.dtype, tensor.shape, (piece,), tensor.device[:40])

    def refuse_callables(self) -> None:
        """Raise Unreadable for names that no checkpoint has a reason to hold, also in pickles that it would load."""
        refuse_callables(self.named)
        for data in self.nested:
            _read(io.BytesIO(data), "", 0, len(data)).refuse_callables()


def read_saved(path: Path, begin: int = 0, length: int | None = None) -> Saved:
    """The objects that torch.save or pickle has put into the file, or into these bytes of it.

    Raises Unreadable and OSError, and anything for a damaged pickle.
    """
    with open(path, "rb") as whole:
        size = path.stat().st_size
        if length is None or (begin, length) == (0, size):
            return _read(whole, str(path), 0, size)
        return _read(_Slice(whole, begin, length), str(path), begin, length)


def _read(stream: Any, file: str, begin: int, length: int) -> Saved:
    start = stream.read(16)
    stream.seek(0)
    if start[:4] == b"PK\x03\x04":
        saved = _read_archive(stream, file, begin)
    elif MAGIC in start:
        saved = _read_old(stream, file, begin)
    else:
        saved = _unpickle(stream, "pickle")
    if any(first + count > begin + length for _, first, count, _ in saved.places.values()):
        raise Unreadable("the file ends inside a tensor")
    return saved


def _unpickle(stream: IO[bytes], kind: str) -> Saved:
    reader = Reader(stream)
    return Saved(kind, reader.load(), {}, reader.named, reader.nested)


def _read_old(stream: IO[bytes], file: str, begin: int) -> Saved:
    """The format before torch 1.6: pickles one after the other, then the storages."""
    for _ in range(3):  # magic number, protocol, sizes of C types
        Reader(stream).load()
    reader = Reader(stream)
    tree = reader.load()
    places: dict[str, Place] = {}
    for key in Reader(stream).load():
        size = int.from_bytes(stream.read(8), "little") * STORED_SIZES[reader.storages[key].dtype]
        places[key] = (file, begin + stream.tell(), size, None)
        stream.seek(size, 1)
    return Saved("torch.save before torch 1.6", tree, places, reader.named, reader.nested)


def _read_archive(stream: Any, file: str, begin: int) -> Saved:
    with zipfile.ZipFile(stream) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise Unreadable("an archive that has two members of one name")
        pickles = [name for name in members if name.split("/")[-1] == "data.pkl" and name.count("/") <= 1]
        if len(pickles) != 1:
            raise Unreadable("an archive without a pickle of torch's")
        prefix = pickles[0].removesuffix("data.pkl")
        storages = {name: member for name, member in members.items() if name.rpartition("/")[0] == f"{prefix}data"}
        order = f"{prefix}byteorder"
        for member in (members[name] for name in (*pickles, *storages, order) if name in members):
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > member.compress_size:
                raise Unreadable(f"{member.filename[:80]} in it is compressed, which torch.save never does")
        if members[pickles[0]].file_size > MOST_PICKLE:
            raise Unreadable("a pickle of more than 256 MiB")
        if order in members and archive.read(order)[:16] != b"little":
            raise Unreadable("big-endian numbers")
        places = {
            name.rpartition("/")[2]: (file, begin + _find_content(stream, member), member.file_size, member.CRC)
            for name, member in storages.items()
        }
        saved = _unpickle(io.BytesIO(archive.read(pickles[0])), "torch.save")
        return dataclasses.replace(saved, places=places, scripted=f"{prefix}constants.pkl" in members)


def _find_content(stream: Any, member: zipfile.ZipInfo) -> int:
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
