"""The environment of a process that is to have no NPU, real or virtual."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchport.vnpu.backend import HOME, library_directory

# Variables of CANN (its set_env.sh and its run time) and of the virtual NPU; TORCHPORT_BACKEND chooses one of the two.
PREFIXES = ("ASCEND_", "ASCENDC_", "VNPU_")
NAMES = frozenset({"TORCHPORT_BACKEND", "TOOLCHAIN_HOME"})
# Search paths that set_env.sh and `torchport vnpu env` put entries into.
PATHS = ("LD_LIBRARY_PATH", "PYTHONPATH", "PATH")
# What lies in a folder of CANN's or of ours that the linker is to search.
LIBRARIES = ("libascendcl.so", "libvnpu.so", "libhccl.so", "libopapi.so")


def environment_without(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without the variables of CANN and of the virtual NPU, and without their folders in search paths."""
    roots = [Path(value) for name, value in environ.items() if name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")]
    roots = [root.resolve() for root in (*roots, HOME, library_directory()) if str(root)]
    result = {name: value for name, value in environ.items() if not name.startswith(PREFIXES) and name not in NAMES}
    for name in PATHS:
        entries = result.get(name, "").split(os.pathsep)
        kept = [entry for entry in entries if not _is_theirs(entry, roots)]
        if kept != entries:
            result[name] = os.pathsep.join(kept)
            if not result[name]:
                del result[name]  # an empty search path means the current folder
    return result


def _is_theirs(entry: str, roots: list[Path]) -> bool:
    if not entry:
        return False
    folder = Path(entry).resolve()
    return any(folder.is_relative_to(root) for root in roots) or any((folder / name).exists() for name in LIBRARIES)
