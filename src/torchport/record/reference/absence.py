"""A process without an NPU: its environment, torch_npu out of its sight, and whether it touched one all the same."""

from __future__ import annotations

import functools
import importlib.machinery
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchport import vnpu
from torchport.on_import import BeforeImport, after_import
from torchport.patches import Patches
from torchport.record.reference.queries import DEVICES

# Packages that only an NPU makes sense of; libraries take an installed torch_npu as the sign that there is one.
PACKAGES = ("torch_npu", "torchair", "acl")
# Their distributions, as importlib.metadata compares names.
DISTRIBUTIONS = frozenset({"torch_npu", "torchair"})
# Libraries whose presence in a process means that it can reach an NPU, real or virtual.
LIBRARIES = ("libascendcl", "libtorch_npu", "libhccl", "libopapi")
MAPS = Path("/proc/self/maps")
NO_BACKEND = "privateuseone"  # what torch calls its slot for a backend while there is none


def make_reference_environment(environ: Mapping[str, str], processes: int = 1) -> dict[str, str]:
    """The environment of a reference process that would otherwise have `environ`; it shows a device for each of the
    `processes` of its run.

    CANN's variables and the virtual NPU's are gone, `import torch` loads no backend, and there is no GPU, which
    would be another reference than the CPU.
    """
    return {
        **vnpu.environment_without(environ),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "CUDA_VISIBLE_DEVICES": "",
        **({DEVICES: str(processes)} if processes > 1 else {}),
    }


def hide_npu() -> Patches:
    """Make torch_npu one that is not installed: for import, find_spec and importlib.metadata. `undo()` shows it again.

    Call it before anything is imported: what is loaded stays loaded, and is reported by `describe_npu_use`.
    """
    patches = Patches()
    finder = importlib.machinery.PathFinder

    def find_spec(original: Any) -> Any:
        def call(fullname: str, path: Any = None, target: Any = None) -> Any:
            return None if fullname.partition(".")[0] in PACKAGES else original(fullname, path, target)

        return call

    _replace_method(patches, finder, "find_spec", find_spec)
    # Its copy on PyPI has a finder of its own. From when they are imported: they take time to be.
    for name in ("importlib.metadata", "importlib_metadata"):
        patches.on_undo(after_import(name, lambda module: _hide_distributions(patches, module.MetadataPathFinder)))
    # `torchport vnpu enable` waits for torch in every process of the environment.
    for waiting in [one for one in sys.meta_path if isinstance(one, BeforeImport) and one.waits_for(PACKAGES)]:
        waiting.cancel()
        patches.on_undo(functools.partial(sys.meta_path.insert, 0, waiting))
    return patches


def describe_npu_use() -> str:
    """What of an NPU this process has touched, as a sentence for people; "" for nothing."""
    found = sorted(name for name in sys.modules if name.partition(".")[0] == "torch_npu")
    if found:
        return f"it imported {found[0]}"
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "_C"):  # not while it is being imported
        backend = torch._C._get_privateuse1_backend_name()
        if backend != NO_BACKEND:
            return f"it gave torch the backend {backend}"
    loaded = _mapped()
    return f"it loaded {loaded[0]}" if loaded else ""


def _mapped() -> list[str]:
    """The NPU's libraries among this process's mappings, by path."""
    try:
        text = MAPS.read_text(errors="replace")
    except OSError:
        return []  # no /proc: there is nothing to say, and no CANN either, which is for Linux
    paths = {line.split(maxsplit=5)[-1] for line in text.splitlines()}
    return sorted(path for path in paths if path.rpartition("/")[2].partition(".")[0] in LIBRARIES)


def _hide_distributions(patches: Patches, finder: Any) -> None:
    def find(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Iterable[Any]:
            return _others(original(*args, **kwargs))

        return call

    _replace_method(patches, finder, "find_distributions", find)


def _others(distributions: Iterable[Any]) -> Iterator[Any]:
    """Those that are not an NPU's."""
    for distribution in distributions:
        name = distribution.metadata["Name"] or ""
        if re.sub(r"[-_.]+", "_", name).lower() not in DISTRIBUTIONS:
            yield distribution


def _replace_method(patches: Patches, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a class method or static method by `make` of it as it is bound to the class."""
    call = make(getattr(owner, name))
    patches.set(owner, name, staticmethod(call))
