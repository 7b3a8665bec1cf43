"""One way to write an HDF5 file: beside its place, and renamed into it when it is whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError, naming

# h5dump and h5py of 2018 and later read it; from this version on what describes the data has checksums.
VERSION = "v110"


class Hdf5File:
    """A file that grows in `path` + `aside` and takes the place of `path` with `finish`.

    Raises TorchportError where h5py is missing, OSError that names the file where it cannot be written.
    """

    def __init__(self, path: Path, aside: str = ".unfinished") -> None:
        self._path = path
        self.aside = path.with_name(path.name + aside)
        h5py = imported()
        with _failing(self.aside):
            self._file = h5py.File(self.aside, "w", libver=(VERSION, VERSION))

    def write(self, name: str, data: Any, **attributes: str) -> None:
        """Add a dataset: an array, or a text for a scalar of that many bytes in UTF-8."""
        if isinstance(data, (str, bytes)):
            text = data.encode() if isinstance(data, str) else data
            import numpy

            data = numpy.array(text or b"\0", f"S{max(len(text), 1)}")
        with _failing(self.aside):
            made = self._file.create_dataset(name, data=data)
            for key, value in attributes.items():
                made.attrs[key] = value

    def group(self, name: str) -> None:
        """Make a group, also where nothing will lie in it."""
        with _failing(self.aside):
            self._file.require_group(name)

    def finish(self, path: Path | None = None) -> int:
        """Rename it into its place, or to `path` beside it; its size in bytes."""
        with _failing(self.aside):
            self._file.close()
            size = os.stat(self.aside).st_size
            os.replace(self.aside, path or self._path)
        return size

    def abandon(self) -> None:
        """Leave nothing of it."""
        # h5py cannot close what a full disk has not taken; the file is about to go.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._file.close()
        self.aside.unlink(missing_ok=True)


def imported() -> Any:
    """h5py. Raises TorchportError where it is missing."""
    try:
        import h5py
    except ImportError as error:
        raise TorchportError(
            f"operators are kept in HDF5 files, and h5py cannot be imported: {error}",
            hint="pip install 'h5py>=3.11'",
        ) from error
    return h5py


@contextlib.contextmanager
def _failing(path: Path) -> Iterator[None]:
    """Errors of HDF5 as what the system said: h5py raises RuntimeError for some, and names no file."""
    with naming(path):
        try:
            yield
        except RuntimeError as error:
            raise OSError(5, str(error).partition(" (")[0]) from error
