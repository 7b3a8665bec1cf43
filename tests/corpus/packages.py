"""The packages of the corpus: downloaded by pip with the hashes of `packages.txt`, unpacked below `build/corpus`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

LIST = Path(__file__).parent / "packages.txt"
FOLDER = Path(__file__).parents[2] / "build" / "corpus"


def trees() -> dict[str, Path]:
    """The folder of each package by its name, in the order of names; downloads what is not there yet."""
    stamp = FOLDER / f"{hashlib.sha256(LIST.read_bytes()).hexdigest()[:16]}.complete"
    if not stamp.exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        _download(FOLDER / "files")
        for archive in sorted((FOLDER / "files").iterdir()):
            _unpack(archive, FOLDER / "trees" / archive.name.partition("-")[0].lower())
        shutil.rmtree(FOLDER / "files")
        stamp.touch()
    return {path.name: path for path in sorted((FOLDER / "trees").iterdir())}


def _download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--require-hashes", "-r", LIST, "-d", folder], check=True)


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
    else:
        with tarfile.open(archive) as source:
            source.extractall(folder, filter="data")
