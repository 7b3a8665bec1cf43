"""Half an installation: metadata without files, files without metadata, two versions in one folder, files missing.

All is read from files: the metadata (`*.dist-info`), its list of files (RECORD), `version.py`. Nothing is imported.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Sequence
from importlib.metadata import Distribution
from pathlib import Path

from torchport.doctor.check import Machine
from torchport.doctor.search_path import (
    LIBRARIES,
    find_other_python,
    find_package,
    has_library,
    list_distributions,
    list_places,
)
from torchport.errors import TorchportError
from torchport.vnpu import wheels

SITES = ("site-packages", "dist-packages")


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """Why a package cannot be used as it is installed, and the commands that mend it."""

    detail: str
    fix: str


def find_damage(machine: Machine, name: str, install: str) -> Damage | None:
    """Whether the package `name` is half installed; None if it is whole, or not installed at all.

    `install` is the command that installs it. It comes last, after what pip would otherwise keep has been removed.
    """
    package = find_package(machine, name)
    shadowing = {shadow.place for shadow in package.shadows}
    noted = list_distributions(name, [place.folder for place in list_places(machine) if place not in shadowing])
    if package.origin is None:
        return _without_files(machine, name, noted, install) if noted else None
    folder = package.origin.parent
    # A checkout has PKG-INFO, which setup.py leaves; pip's METADATA is only where files were installed.
    here = [each for each in noted if _folder(each) == folder.parent and each.read_text("METADATA")]
    uninstall = " && ".join([f"pip uninstall -y {name}"] * max(len(here), 1))
    remove = package.to_install(f"{uninstall} && rm -rf {folder} && {install}")
    if other := find_other_python(folder, name):
        return Damage(f"{folder} is built for another Python ({other})", remove)
    site = folder.parent.name in SITES
    if len(here) > 1:
        versions = " and ".join(sorted(each.version for each in here))
        return Damage(f"two versions are installed over each other in {folder.parent}: {versions}", remove)
    if site and not noted:
        detail = f"half an installation: {folder} has no metadata (*.dist-info), so pip does not know of it"
        return Damage(detail, package.to_install(f"rm -rf {folder} && {install}"))
    if not has_library(folder, name):
        detail = f"half an installation: {folder} has no library {LIBRARIES[name][0]}"
        if not site and not here:
            return Damage(f"{folder} is source that is not built (no library {LIBRARIES[name][0]})", _build(folder))
        return Damage(detail, remove)
    if here and (missing := _missing(here[0], name)):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return Damage(f"half an installation: its RECORD lists {missing[0]}{more}, missing or empty here", remove)
    if here and (other := _other_files(package.origin, here[0].version)):
        return Damage(f"its files are of {other}, its metadata of {here[0].version}: one lies over the other", remove)
    return None


def _without_files(machine: Machine, name: str, noted: Sequence[Distribution], install: str) -> Damage:
    first = noted[0]
    metadata = _folder(first)
    if (checkout := _checkout(first)) is not None:
        detail = f"{first.version} is an editable installation of {checkout}, which is not there or has no {name}/"
        return Damage(detail, f"pip uninstall -y {name} && {install}")
    detail = f"half an installation: {metadata} has the metadata of {name} {first.version} and not its files"
    steps = [f"pip uninstall -y {name}"] * len(noted)
    if any(each.read_text("RECORD") is None for each in noted):  # then pip refuses
        steps = [f"rm -rf {metadata}/{name}-*.dist-info"]
    left = [place.folder / name for place in list_places(machine) if not place.why and (place.folder / name).is_dir()]
    steps += [f"rm -rf {folder}" for folder in left]
    return Damage(detail, " && ".join([*steps, install]))


def _missing(distribution: Distribution, name: str) -> list[str]:
    """Libraries and modules at the top of the package that RECORD lists and that are missing or empty.

    Other files may have been removed to make an image small, and a library may have been stripped.
    """
    missing = []
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        path = row[0] if row else ""
        if not path.startswith((f"{name}/", f"{name}.libs/")):
            continue
        library = re.search(r"\.so(\.[\d.]+)?$", path) is not None
        if not library and not re.fullmatch(r"[^/]+/[^/]+\.py", path):
            continue
        file = Path(str(distribution.locate_file(path)))
        try:
            empty = file.stat().st_size == 0 and row[2:3] not in (["0"], [""])
        except OSError:
            empty = library or not file.with_suffix(".pyc").exists()
        if empty:
            missing.append(path)
    return missing


def _other_files(origin: Path, noted: str) -> str:
    """The version in version.py if its release is not that of the metadata; else ""."""
    try:
        version = wheels.read_wheel(origin.parent.name, origin).version
    except TorchportError:
        return ""
    ours, theirs = (re.findall(r"\d+", text.partition("+")[0]) for text in (version, noted))
    return version if ours and [*ours, "0", "0"][:3] != [*theirs, "0", "0"][:3] else ""


def _folder(distribution: Distribution) -> Path:
    return Path(str(distribution.locate_file("")))


def _checkout(distribution: Distribution) -> str | None:
    """The folder that an editable installation points to."""
    try:
        told = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    if not isinstance(told, dict) or not told.get("dir_info", {}).get("editable"):
        return None
    return str(told.get("url", "")).removeprefix("file://")


def _build(folder: Path) -> str:
    return f"Build it (pip install --no-build-isolation -e {folder.parent}), or take its folder out of the search path."
