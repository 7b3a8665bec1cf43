"""One way to write an HDF5 file: beside its place, and renamed into it when it is whole."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError, name_path_in_errors

# h5dump and h5py of 2018 and later read it; from this version on what describes the data has checksums.
VERSION = "v110"
PAGE = 4096  # what direct writes come in; every disk's sectors fit
LARGE = 1 << 16  # bytes: datasets from here on begin at a page
# Seconds a byte: a disk slower than 100 MB/s is left to the system's cache, which it can fill while the run computes.
SLOW = 1e-8


class Hdf5File:
    """A file that grows in `path` + `aside` and takes the place of `path` with `finish`.

    Raises TorchportError where h5py is missing, OSError that names the file where it cannot be written.
    """

    def __init__(self, path: Path, aside: str = ".unfinished") -> None:
        self._path = path
        self.aside = path.with_name(path.name + aside)
        h5py = import_h5py()
        with _failing(self.aside):
            self._file = h5py.h5f.create(os.fsencode(self.aside), h5py.h5f.ACC_TRUNC, fapl=_access())
        self._direct: int | None = None  # a descriptor beside HDF5's own
        self._goes_direct = True

    def write_dataset(self, name: str, data: Any, **attributes: str) -> None:
        """Add a dataset: an array, or a text for a scalar of that many bytes in UTF-8."""
        import numpy

        h5py = import_h5py()
        if isinstance(data, (str, bytes)):
            text = data.encode() if isinstance(data, str) else data
            data = numpy.array(text or b"\0", f"S{max(len(text), 1)}")
        data = numpy.ascontiguousarray(data) if data.ndim else data
        # By HDF5's own calls: h5py's create_dataset() takes three times as long, and a step has seven.
        with _failing(self.aside):
            kind = _type(data.dtype)
            space = h5py.h5s.create_simple(data.shape) if data.ndim else h5py.h5s.create(h5py.h5s.SCALAR)
            made = h5py.h5d.create(self._file, name.encode(), kind, space, lcpl=_links())
            if data.size:
                made.write(h5py.h5s.ALL, h5py.h5s.ALL, data, mtype=kind)
            if attributes:
                h5py.Dataset(made).attrs.update(attributes)

    def write_block(self, name: str, data: Any) -> None:
        """Add a dataset of bytes (a flat uint8 array), past the system's cache where memory and file system take that:
        a copy into the cache and its pages cost more processor time than all else that is done with the bytes."""
        import numpy

        h5py = import_h5py()
        with _failing(self.aside):
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_layout(h5py.h5d.CONTIGUOUS)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            space = h5py.h5s.create_simple(data.shape)
            made = h5py.h5d.create(self._file, name.encode(), h5py.h5t.STD_U8LE, space, properties)
            place = made.get_offset()
            whole = data.nbytes // PAGE * PAGE
            if whole == 0 or place is None or place % PAGE or data.ctypes.data % PAGE:
                made.write(h5py.h5s.ALL, h5py.h5s.ALL, numpy.ascontiguousarray(data))
                return
            begin = time.monotonic()
            done = self._past_the_cache(data[:whole], place)
            if time.monotonic() - begin > SLOW * whole:
                self._goes_direct = False
            if done < data.nbytes:
                space.select_hyperslab((done,), (data.nbytes - done,))
                rest = h5py.h5s.create_simple((data.nbytes - done,))
                made.write(rest, space, numpy.ascontiguousarray(data[done:]))

    def _past_the_cache(self, data: Any, place: int) -> int:
        """How many bytes were written so, from the first on. Raises OSError for a full disk."""
        done = 0
        try:
            if self._direct is None and self._goes_direct:
                self._direct = os.open(self.aside, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
            while self._goes_direct and self._direct is not None and done < data.nbytes:
                wrote = os.pwrite(self._direct, data[done:], place + done)
                done += wrote // PAGE * PAGE
                if wrote % PAGE:  # a disk that becomes full takes a part: what is left says so
                    break
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._goes_direct = False  # a file system without it, or with larger pages
        return done

    def add_group(self, name: str) -> None:
        """Make a group, also where nothing will lie in it."""
        with _failing(self.aside):
            import_h5py().Group(self._file).require_group(name)

    def finish(self, path: Path | None = None) -> int:
        """Rename it into its place, or to `path` beside it; its size in bytes."""
        self._close_direct()
        with _failing(self.aside):
            self._file.close()
            size = os.stat(self.aside).st_size
            os.replace(self.aside, path or self._path)
        return size

    def abandon(self) -> None:
        """Leave nothing of it."""
        self._close_direct()
        # h5py cannot close what a full disk has not taken; the file is about to go.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._file.close()
        self.aside.unlink(missing_ok=True)

    def _close_direct(self) -> None:
        direct, self._direct = self._direct, None
        if direct is not None:
            os.close(direct)


@functools.cache
def _access() -> Any:
    """How files are opened: their version, where large data begin, and that closing one closes what is in it."""
    h5py = import_h5py()
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    version = getattr(h5py.h5f, f"LIBVER_{VERSION.upper()}")
    access.set_libver_bounds(version, version)
    access.set_alignment(LARGE, PAGE)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    return access


@functools.cache
def _links() -> Any:
    """Names may have groups in them, and are UTF-8."""
    h5py = import_h5py()
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5py.h5t.CSET_UTF8)
    return links


@functools.lru_cache(64)  # texts have one for each length
def _type(dtype: Any) -> Any:
    return import_h5py().h5t.py_create(dtype, logical=True)


def import_h5py() -> Any:
    """h5py. Raises TorchportError where it is missing."""
    try:
        import h5py
    except ImportError as error:
        raise TorchportError(
            f"operators are kept in HDF5 files, and h5py cannot be imported: {error}", hint="pip install 'h5py>=3.11'"
        ) from error
    return h5py


@contextlib.contextmanager
def _failing(path: Path) -> Iterator[None]:
    """Errors of HDF5 as what the system said: h5py raises RuntimeError for some, and names no file."""
    with name_path_in_errors(path):
        try:
            yield
        except RuntimeError as error:
            raise OSError(5, str(error).partition(" (")[0]) from error
