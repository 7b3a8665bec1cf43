"""The finders on `sys.meta_path` that answer imports of CUDA-only packages."""

from __future__ import annotations

import functools
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

from torchport.knowledge.libraries import Support, load_libraries

PACKAGES = Path(__file__).with_name("packages")

# A file inside an installed package that only its Ascend build has: such a package is used as it is.
ASCEND_BUILDS = {"apex": "optimizers/npu_fused_sgd.py"}


class Standins:
    """Finds `packages/<library>`. First on `sys.meta_path`: an installed package of that name is built for CUDA,
    except where it is the library's Ascend build."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Called by the import system for each module that is not loaded yet.

        A program that probes is answered what is installed: transformers, say, asks a package that it finds for the
        name of its distribution, and a stand-in has none.
        """
        library = fullname.partition(".")[0]
        if library not in names() or _is_ascend_build(library):
            return None
        if fullname == library and not _is_imported() and PathFinder.find_spec(library) is None:
            return None
        return _spec(fullname)


class Explanations:
    """Says what to use instead of a package that is not installed. Last on `sys.meta_path`, so it sees only
    what nobody else has found."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Called by the import system. Raises ModuleNotFoundError for a package of `libraries.toml`.

        Only when an import statement asks; for who probes, an absent package is simply absent.
        """
        if "." in fullname or not _is_imported():
            return
        row = load_libraries().get(fullname)
        if row is not None and row.status is not Support.WORKS:
            hint = f" Install it with `{row.install}`." if row.install else ""
            raise ModuleNotFoundError(f"No module named {fullname!r}. On an NPU: {row.note}{hint}", name=fullname)


@functools.cache
def names() -> frozenset[str]:
    """The libraries that have a stand-in, by import name."""
    return frozenset(entry.stem for entry in PACKAGES.iterdir() if not entry.name.startswith("__"))


def install() -> None:
    """Answer imports of the stand-ins' libraries in this process; calling it again does nothing.

    Modules that are already imported stay what they are.
    """
    if not any(isinstance(finder, Standins) for finder in sys.meta_path):
        sys.meta_path.insert(0, Standins())
        sys.meta_path.append(Explanations())


def uninstall() -> None:
    """Take the finder away and forget the stand-ins that were imported; harmless when not installed.

    Objects that the script holds keep working; the next import of such a library finds what is installed.
    """
    ours = (Standins, Explanations)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, ours)]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in names():
            continue  # and not asked for __spec__: torch_npu has modules that load at any question
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if origin and PACKAGES in Path(origin).parents:
            del sys.modules[name]


def _is_imported() -> bool:
    """Whether the finder's method that asks is called for an import: `importlib.util.find_spec` is how programs probe
    for what is installed."""
    # Frames: this, the method, importlib's _find_spec, and whoever called that.
    return sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"


def _spec(fullname: str) -> ModuleSpec | None:
    place = PACKAGES.joinpath(*fullname.split("."))
    package = place / "__init__.py"
    if package.is_file():
        return spec_from_file_location(fullname, package, submodule_search_locations=[str(place)])
    module = place.with_suffix(".py")
    return spec_from_file_location(fullname, module) if module.is_file() else None


@functools.cache
def _is_ascend_build(library: str) -> bool:
    marker = ASCEND_BUILDS.get(library)
    spec = PathFinder.find_spec(library) if marker else None
    folders = spec.submodule_search_locations if spec else None
    return any((Path(folder) / marker).is_file() for folder in folders or () if marker)
