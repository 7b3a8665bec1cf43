"""The folders of a CANN installation as MindSpore looks for them.

MindSpore takes the folder above the one that libascendcl.so was loaded from for CANN's, if its name is cann, and opens
the other libraries by path below it: lib64/libopapi.so, lib64/driver/libascend_hal.so. So there is lib/cann/lib64 with
links to the virtual NPU's libraries, and to those that only MindSpore is to see (lib/mindspore), which go before them.
"""

from __future__ import annotations

import os
from pathlib import Path

from torchport.errors import TorchportError
from torchport.vnpu.backend import BUILD_HINT, PACKAGE, library_directory

# What ASCEND_HOME_PATH has to be.
HOME = PACKAGE / "mindspore" / "cann"
# What MindSpore wants to see in PYTHONPATH: the packages te, tbe and hccl.
PYTHON = HOME / "opp" / "built-in" / "op_impl" / "ai_core" / "tbe"
# Below lib64, where the driver has a folder of its own.
DRIVER = "libascend_hal.so"


def complete_lib64() -> Path:
    """The folder of libraries, completed.

    Raises `TorchportError` where the virtual NPU was built without MindSpore's libraries, or the folder is not ours to
    write.
    """
    libraries = library_directory()
    own = libraries / "mindspore"
    if not (own / "libgraph.so").exists():
        raise TorchportError(
            f"The virtual NPU in {libraries} was built before it had MindSpore's libraries.", hint=BUILD_HINT
        )
    folder = libraries / "cann" / "lib64"
    wanted = {path.name: path for place in (libraries, own) for path in place.glob("*.so")}
    try:
        (folder / "driver").mkdir(parents=True, exist_ok=True)
        for link in folder.glob("*.so"):
            if link.name not in wanted:
                link.unlink(missing_ok=True)
        for name, path in wanted.items():
            _link(folder / name, Path("../..", path.relative_to(libraries)))
        _link(folder / "driver" / DRIVER, Path("..", DRIVER))
    except OSError as error:
        raise TorchportError(
            f"{folder} cannot be completed: {error.strerror}.",
            hint="Run `torchport vnpu env --mindspore` once as the user who has installed torchport.",
        ) from error
    return folder


def _link(link: Path, target: Path) -> None:
    """Make `link` one to `target`, also where another process does the same at this moment."""
    if link.is_symlink() and link.readlink() == target:
        return
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(link)
