"""One step's file, read: checked as a whole before anything of it is believed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

from torchport.errors import TorchportError
from torchport.record.hdf5 import import_h5py
from torchport.record.operators import layout

MOST = 256 << 20  # bytes of one table: a step of half a million calls
KEPT = 96 << 20  # bytes of contents that were read last
LITTLE = 256 << 20  # bytes of a tensor that anybody's memory has
HINT = "Copy the recording again, or record the run again; `torchport record show` lists the steps that are whole."


def make_damage_error(path: Path, what: str) -> TorchportError:
    """What is said of a file that is not what we write."""
    return TorchportError(f"{path}: {what}", hint=HINT)


class StepFile:
    """The tables of a step, in memory, and its file, open for contents until `close`.

    `about` is the text of that name, `tables` has the arrays of `layout.TABLES`, `strings` the lines. Raises
    TorchportError with file and place for what is no such file, is damaged, or would take more memory than a step has.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        h5py = import_h5py()
        try:
            size = path.stat().st_size
            self._file = h5py.File(path, "r", locking=False)
        except FileNotFoundError as error:
            raise make_damage_error(path, "the file is not there") from error
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise make_damage_error(path, f"no whole HDF5 file: {_first(error)}") from error
        try:
            self._read(size)
        except TorchportError:
            self.close()
            raise
        # Whatever HDF5 stumbles over in a damaged file, by way of h5py.
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            self.close()
            raise make_damage_error(path, f"cannot be read: {_first(error)}") from error

    def close(self) -> None:
        """Close the file; contents cannot be read any more."""
        self._file.close()

    def __enter__(self) -> StepFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, size: int) -> None:
        about = self._text(layout.ABOUT, size)
        try:
            self.about: Mapping[str, Any] = json.loads(about)
        except ValueError as error:
            raise make_damage_error(self.path, f"`about` is no JSON: {error}") from error
        if not isinstance(self.about, dict) or self.about.get("layout") != layout.LAYOUT:
            found = self.about.get("layout") if isinstance(self.about, dict) else None
            raise make_damage_error(self.path, f"layout {found!r}, where this torchport reads {layout.LAYOUT}")
        strings = self._text(layout.STRINGS, size)
        self._agree(layout.STRINGS, strings)
        self.strings = strings.decode("utf-8").split("\n")
        self.tables: dict[str, Any] = {}
        for name, dtype in layout.TABLES.items():
            if name in layout.OPTIONAL and self._file.get(name, getlink=True) is None:
                self.tables[name] = numpy.empty(0, dtype)
                continue
            found = self._dataset(name, size)
            if found.dtype != dtype or found.ndim != 1:
                raise make_damage_error(self.path, f"`{name}` is no table of the layout {layout.LAYOUT}")
            self.tables[name] = found[()]
            self._agree(name, self.tables[name].tobytes())
        self._consistent()

    def _agree(self, name: str, data: bytes) -> None:
        sums = self.about.get("crc32")
        if not isinstance(sums, dict) or zlib.crc32(data) != sums.get(name):
            raise make_damage_error(self.path, f"`{name}` is not what was written: its CRC-32 differs")

    def _text(self, name: str, size: int) -> bytes:
        found = self._dataset(name, size)
        if found.shape != () or found.dtype.kind != "S":
            raise make_damage_error(self.path, f"`{name}` is no text")
        return bytes(found[()])

    def _dataset(self, name: str, size: int) -> Any:
        """A dataset that lies in this file as it is: no link elsewhere, no filter, no more bytes than the file has."""
        h5py = import_h5py()
        link = self._file.get(name, getlink=True)
        if link is None:
            raise make_damage_error(self.path, f"there is no `{name}` in it")
        if not isinstance(link, h5py.HardLink):
            raise make_damage_error(self.path, f"`{name}` is a link to another place, which is not followed")
        found = self._file[name]
        if not isinstance(found, h5py.Dataset):
            raise make_damage_error(self.path, f"`{name}` is no dataset")
        properties = found.id.get_create_plist()
        if properties.get_external_count() or found.is_virtual:
            raise make_damage_error(self.path, f"`{name}` lies in another file, which is not read")
        if properties.get_nfilters():
            raise make_damage_error(
                self.path, f"`{name}` needs filter {properties.get_filter(0)[0]}: nothing of ours is filtered"
            )
        most = size if name.startswith("bytes_") else min(size, MOST)
        # Object and text of any length: nothing of ours has them, and reading them leads anywhere in the file.
        if found.dtype.hasobject or found.dtype.itemsize * _product(found.shape) > most:
            raise make_damage_error(self.path, f"`{name}` says that it has {found.shape} elements of {found.dtype}")
        return found

    def _consistent(self) -> None:
        """Every index points into its table."""
        calls, tensors, contents = (self.tables[name] for name in ("calls", "tensors", "contents"))
        links, dims, lines = self.tables["links"], self.tables["dims"], len(self.strings)
        for first, count in (("inputs", "input_count"), ("outputs", "output_count")):
            self._within("calls", first, calls[first], 0, len(links))
            self._within("calls", count, calls[first].astype("i8") + calls[count], 0, len(links))
            self._within("calls", count, calls[count], 0, len(links))
        ends = calls["outputs"].astype("i8") + calls["output_count"] + calls["written_count"]
        self._within("calls", "written_count", ends, 0, len(links))
        self._within("calls", "written_count", calls["written_count"], 0, len(links))
        # Each call and tensor has places of its own: what shares them would take ever longer to read.
        counts = sum(calls[name].sum(dtype="i8") for name in ("input_count", "output_count", "written_count"))
        if counts > len(links) or 2 * tensors["rank"].sum(dtype="i8") > len(dims):
            raise make_damage_error(
                self.path, f"calls have {counts} tensors in {len(links)} `links`, or tensors more sizes than `dims`"
            )
        for name in ("operator", "overload", "module", "function", "source", "arguments", "results", "node"):
            self._within("calls", name, calls[name], -1, lines - 1)
        self._within("calls", "operator", calls["operator"], 0, lines - 1)
        self._within("calls", "phase", calls["phase"], 0, len(layout.PHASES) - 1)
        self._within("links", "", links, -1, len(tensors) - 1)
        for name in ("dtype", "device", "format", "name", "reason"):
            self._within("tensors", name, tensors[name], -1, lines - 1)
        self._within("tensors", "content", tensors["content"], -1, len(contents) - 1)
        self._within("tensors", "dims", tensors["dims"], 0, len(dims))
        self._within("tensors", "rank", tensors["dims"].astype("i8") + 2 * tensors["rank"], 0, len(dims))
        self._within("contents", "offset", contents["offset"], 0, 1 << 62)
        self._within("contents", "size", contents["size"], 0, 1 << 62)
        self._within("contents", "block", contents["block"], 0, 1 << 30)
        changes = self.tables["changes"]
        self._within("changes", "call", changes["call"], 0, len(calls) - 1)
        self._within("changes", "after", changes["after"], -1, len(calls) - 1)
        self._within("changes", "tensor", changes["tensor"], 0, len(tensors) - 1)
        self._within("changes", "by", changes["by"], -1, len(tensors) - 1)
        self._within("changes", "content", changes["content"], 0, len(contents) - 1)
        lengths = numpy.array([len(line) for line in self.strings] + [0], "i8")  # the last is that of -1: none
        size = int(sum(lengths[calls[name]].sum() for name in ("arguments", "results")))
        if size > MOST:
            raise make_damage_error(self.path, f"`calls` have {size:,} characters of arguments")

    def _within(self, table: str, field: str, values: Any, least: int, most: int) -> None:
        wrong = numpy.flatnonzero((values < least) | (values > most))
        if len(wrong):
            row = int(wrong[0])
            raise make_damage_error(
                self.path, f"`{table}` row {row}: {field or 'index'} {values[row]} leads out of the file"
            )

    def check_blocks(self) -> None:
        """Raises TorchportError where the blocks that contents lie in are not there as we write them; reads none."""
        size = self.path.stat().st_size
        for number in numpy.unique(self.tables["contents"]["block"]):
            self._dataset(layout.block_name(int(number)), size)

    def get_max_tensor_bytes(self) -> int:
        """Bytes that one tensor of it may take: a file with holes says that it has more than anybody wrote."""
        return max(LITTLE, self.path.stat().st_blocks * 512)

    def get_line(self, index: int) -> str:
        """A line of `strings`; "" for none."""
        return self.strings[index] if index >= 0 else ""

    def read_content(self, row: int) -> Any:
        """The bytes of a row of `contents`, checked against its checksum; they are not to be written. Raises
        TorchportError where they differ."""
        from torchport.record.operators.checksum import compute_checksum

        if row in self._kept:
            return self._kept[row]
        one = self.tables["contents"][row]
        name = layout.block_name(int(one["block"]))
        start, size = int(one["offset"]), int(one["size"])
        if size > self.get_max_tensor_bytes():
            raise make_damage_error(
                self.path, f"content {row} says that it has {size:,} bytes, more than the file has on the disk"
            )
        try:
            block = self._dataset(name, self.path.stat().st_size)
            if block.ndim != 1 or block.dtype != numpy.uint8 or start + size > block.shape[0]:
                raise make_damage_error(
                    self.path, f"content {row} lies at {start} to {start + size} of `{name}`, which is smaller"
                )
            data = block[start : start + size]
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise make_damage_error(self.path, f"content {row} in `{name}` cannot be read: {_first(error)}") from error
        if compute_checksum(data) != int(one["checksum"]):
            raise make_damage_error(
                self.path, f"content {row} in `{name}` is not what was written: its checksum differs"
            )
        self._keep(row, data)
        return data

    @cached_property
    def _kept(self) -> dict[int, Any]:
        return {}

    def _keep(self, row: int, data: Any) -> None:
        """One call's results are the inputs of the next: what was read last is at hand."""
        self._kept[row] = data
        self._held += data.nbytes
        while self._held > KEPT and len(self._kept) > 1:
            self._held -= self._kept.pop(next(iter(self._kept))).nbytes

    _held = 0

    def iterate_rows(self, table: str) -> Iterator[Any]:
        """The rows of a table, one by one."""
        return iter(self.tables[table])


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= int(size)
    return total


def _first(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
