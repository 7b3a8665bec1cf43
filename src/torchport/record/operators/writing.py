"""A thread that writes steps to files while the run goes on."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torchport.record.hdf5 import Hdf5File, import_h5py
from torchport.record.operators import layout
from torchport.record.operators.tables import StepTables

FRAME = 8192  # bytes that HDF5 needs for itself in a step's file, at most


class Source(Protocol):
    """Where the thread takes its work from."""

    def take_item(self) -> tuple[str, Any] | None:
        """Wait for the next: ("block", array of bytes), or ("step", (name, StepTables)) which ends a step, or ("drop",
        None) which throws its blocks away. None at the end."""


class Writer:
    """Writes what `source` gives, a file for each step, until the source ends: first as `aside` in `root`, and when it
    is whole to `folder()`, which is asked for at the end of each step.

    `written(name, file, tables, size)` is called in the thread for each step that is whole, `about()` is kept in each
    file. When nothing can be written any more (a full disk, `max_bytes`), `failure` has a sentence; what comes is
    thrown away then, so that nobody waits for it.
    """

    def __init__(
        self,
        source: Source,
        root: Path,
        aside: str,
        folder: Callable[[], Path],
        about: Callable[[], Mapping[str, Any]],
        written: Callable[[str, Path, StepTables, int], None],
        max_bytes: int | None = None,
    ) -> None:
        import_h5py()  # here, where somebody sees what it raises
        self._source = source
        self._root = root
        self._aside = aside
        self._folder = folder
        self._about = about
        self._written = written
        self._left = max_bytes
        self._most = max_bytes
        self._file: Hdf5File | None = None
        self._blocks = 0
        self._size = 0
        self.failure = ""
        self.full = False  # whether the failure is the disk's, not a limit that somebody has set
        self._thread = threading.Thread(target=self._work, name="torchport-record", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the source has ended and all of it is written."""
        self._thread.join()

    def add_freed_bytes(self, size: int) -> None:
        """So many bytes of earlier steps are not there any more."""
        if self._left is not None:
            self._left += size

    def _work(self) -> None:
        while (item := self._source.take_item()) is not None:
            kind, value = item
            if self.failure:
                continue
            try:
                if kind == "block":
                    self._block(value)
                elif kind == "step":
                    self._step(*value)
                else:
                    self._drop()
            except OSError as error:
                place = error.filename or self._root
                self._fail(f"operators cannot be written to {place}: {error.strerror}", full=True)
            except Exception as error:  # whatever it is: a run that waits for this thread must not wait for ever
                self._fail(f"operators cannot be written to {self._root}: {error!r}", full=True)
        self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            self._file.abandon()
            self._file = None

    def _open(self) -> Hdf5File:
        if self._file is None:
            self._root.mkdir(parents=True, exist_ok=True)
            # Its name is known when it is whole; blocks come before.
            self._file = Hdf5File(self._root / self._aside, layout.UNFINISHED)
            self._blocks = self._size = 0
        return self._file

    def _fits(self, size: int) -> bool:
        """Whether that many more bytes may be written; else the recording has ended."""
        self._size += size
        if self._left is None or self._size <= self._left:
            return True
        self._fail(f"the recording of operators has reached --max-bytes {self._most:,}", full=False)
        return False

    def _fail(self, text: str, *, full: bool) -> None:
        self.failure, self.full = text, full
        self._drop()

    def _block(self, data: Any) -> None:
        file = self._open()
        if self._fits(data.nbytes):
            file.write_block(layout.block_name(self._blocks), data)
            self._blocks += 1

    def _step(self, name: str, tables: StepTables) -> None:
        file = self._open()
        size = sum(array.nbytes for array in tables.arrays.values()) + len(tables.strings)
        if not self._fits(size + FRAME):
            return
        sums = {table: zlib.crc32(array) for table, array in tables.arrays.items()}
        sums[layout.STRINGS] = zlib.crc32(tables.strings)
        about = {"layout": layout.LAYOUT, "step": name, **self._about(), "lost": tables.lost, "crc32": sums}
        file.write_dataset(layout.ABOUT, json.dumps(about))
        file.write_dataset(layout.STRINGS, tables.strings)
        for table, array in tables.arrays.items():
            file.write_dataset(table, array)
        path = self._folder() / f"{name}.h5"
        path.parent.mkdir(exist_ok=True)
        size = file.finish(path)
        self._file = None
        if self._left is not None:
            self._left -= size
        self._written(name, path, tables, size)
