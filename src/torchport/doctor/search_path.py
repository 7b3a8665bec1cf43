"""Where Python finds a package, and the folders and files that it finds before the installed one.

Python looks first into the script's folder (for `python -c` and `python -m`, the working folder), then into PYTHONPATH,
then into site-packages. Nothing is imported here.
"""

from __future__ import annotations

import dataclasses
import os
import site
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

from torchport.doctor.check import Check, Machine

# Packages of which every build has a library: a folder without it is source, or another project's.
LIBRARIES = {
    "torch": ("_C",),
    "torch_npu": ("_C",),
    "torchvision": ("_C",),
    "numpy": ("_core/_multiarray_umath", "core/_multiarray_umath"),
}
# torch_npu does not run without these. Nothing else may have their names, even if they are not installed.
NEEDED = ("torch", "torch_npu", "numpy")
# A project may bring these itself; they are shadows only in front of an installed package.
OPTIONAL = ("torchvision", "torchaudio", "apex")
WORKING_FOLDER = "the working folder"
PYTHONPATH = "PYTHONPATH"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A folder of the search path. `why` is `WORKING_FOLDER`, `PYTHONPATH`, or "" for the folders of installations."""

    folder: Path
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Shadow:
    """A folder or file that is imported in place of the package `name`."""

    name: str
    path: Path
    place: Place
    reason: str

    @property
    def fix(self) -> str:
        """The change after which the installed package is imported. It is never another installation."""
        if self.place.why == PYTHONPATH:
            return f"Take {self.place.folder} out of PYTHONPATH, or rename {self.path}."
        return f"Start Python from another folder, or rename {self.path}."


@dataclasses.dataclass(frozen=True, slots=True)
class Package:
    """The first package of a name that is no shadow. `origin` is its `__init__.py`; None if there is none."""

    name: str
    origin: Path | None
    place: Place | None
    shadows: tuple[Shadow, ...] = ()

    def to_install(self, commands: str) -> str:
        """The whole fix if `commands` install another package: pip does not change the folders before its own."""
        if self.place is None or not self.place.why:
            return commands
        if self.place.why == PYTHONPATH:
            return f"Take {self.place.folder} out of PYTHONPATH. If `torchport doctor` still fails: {commands}"
        return f"Start Python from another folder. If `torchport doctor` still fails: {commands}"


def list_checks(machine: Machine) -> Iterator[Check]:
    """A line for each shadow; nothing if there is none."""
    for shadow in find_shadows(machine, *NEEDED, *OPTIONAL):
        detail = f"{shadow.path} is found first when a script imports {shadow.name}: {shadow.reason}"
        yield Check("import path", False, detail, shadow.fix)


def find_shadows(machine: Machine, *names: str) -> list[Shadow]:
    """The shadows of these packages."""
    return [shadow for name in names for shadow in find_package(machine, name).shadows]


def find_package(machine: Machine, name: str) -> Package:
    """The package that a script in the working folder should get, and its shadows."""
    places = list_places(machine)
    installed = _find_installed([place for place in places if not place.why], name)
    shadows: list[Shadow] = []
    for place in places:
        origin = _find_origin(place.folder, name)
        if origin is None:
            continue
        if not place.why or (installed.origin is not None and origin.resolve() == installed.origin.resolve()):
            break  # also an editable installation from the working folder
        reason = _reason(place.folder, name, origin, installed.origin)
        if not reason:
            return Package(name, origin, place, tuple(shadows))
        path = origin if origin.parent == place.folder else place.folder / name
        shadows.append(Shadow(name, path, place, reason))
    return dataclasses.replace(installed, shadows=tuple(shadows))


def list_places(machine: Machine) -> list[Place]:
    """The search path of a script that lies in the working folder, in order, each folder once."""
    fronts: list[Place] = []
    safe = sys.flags.safe_path or machine.environ.get("PYTHONSAFEPATH")
    if machine.working_folder is not None and not safe:
        fronts.append(Place(machine.working_folder, WORKING_FOLDER))
    if variable := machine.environ.get("PYTHONPATH", ""):
        base = machine.working_folder or Path("/")  # an empty entry is the working folder
        fronts += [Place(base / entry, PYTHONPATH) for entry in variable.split(os.pathsep)]
    own = {Path(entry) for entry in (*site.getsitepackages(), site.getusersitepackages())}
    places: dict[Path, Place] = {}
    for place in fronts:
        places.setdefault(place.folder, Place(place.folder) if place.folder in own else place)
    for folder in map(Path, filter(None, machine.path)):
        if folder != machine.working_folder:
            places.setdefault(folder, Place(folder))
    return list(places.values())


def list_distributions(name: str, folders: Sequence[Path]) -> list[metadata.Distribution]:
    """The metadata of the package `name` that pip or setup.py left in these folders, each distribution once."""
    found = metadata.distributions(name=name, path=[str(folder) for folder in folders])
    return list({str(each.locate_file("")) + (each.version or ""): each for each in found}.values())


def has_library(folder: Path, name: str) -> bool:
    """Whether the library that every build of a package has is there, for this Python; true if it needs none."""
    wanted = LIBRARIES.get(name, ())
    return not wanted or any((folder / f"{each}{suffix}").exists() for each in wanted for suffix in EXTENSION_SUFFIXES)


def find_other_python(folder: Path, name: str) -> str:
    """The other Python that a package is built for, as `cpython-310`; "" if it is built for this one, or not built."""
    if has_library(folder, name):
        return ""
    built = [path.name for each in LIBRARIES[name] for path in sorted(folder.glob(f"{each}.*-*.so"))]
    return "-".join(built[0].split(".")[1].split("-")[:2]) if built else ""


def _find_installed(places: Sequence[Place], name: str) -> Package:
    for place in places:
        if origin := _find_origin(place.folder, name):
            return Package(name, origin, place)
    for finder in sys.meta_path:  # hooks of editable installations: setuptools', scikit-build-core's
        find = getattr(finder, "find_spec", None)
        if find is not None and "editable" in getattr(finder, "__module__", type(finder).__module__):
            spec = find(name, None)
            if spec is not None and spec.origin is not None:
                return Package(name, Path(spec.origin), None)
    return Package(name, None, None)


def _find_origin(folder: Path, name: str) -> Path | None:
    """The file that `import name` reads in this folder. A folder without `__init__.py` hides no package behind it."""
    spec = PathFinder.find_spec(name, [str(folder)])
    return None if spec is None or spec.origin is None or not spec.has_location else Path(spec.origin)


def _reason(folder: Path, name: str, origin: Path, installed: Path | None) -> str:
    """Why the file `origin` in `folder` is not the package; "" if it may be."""
    if name in OPTIONAL and installed is None:
        return ""
    behind = "" if installed is None else f"; the installed one is in {installed.parent}"
    if origin.parent == folder:
        return f"it is a single file{behind}"
    if other := find_other_python(origin.parent, name):
        return f"it is built for another Python ({other}){behind}"
    noted = list_distributions(name, [folder])
    if name in LIBRARIES:
        # Metadata of a wheel (METADATA) says that it was installed here. setup.py leaves PKG-INFO in any checkout.
        kept = has_library(origin.parent, name) or any(each.read_text("METADATA") for each in noted)
        return "" if kept else f"it has no library {LIBRARIES[name][0]}, so it is not {name}, or not built{behind}"
    return "" if noted else f"it is another package of this name{behind}"
