"""torchvision and torchaudio from the default index are CUDA builds, which a CPU build of torch cannot load.

torch_npu needs the CPU build of torch, so everyone who installs torchvision beside it by plain `pip install` gets
`RuntimeError: operator torchvision::nms does not exist` from `import torchvision`. Such a build holds its CPU
operators all the same; it only links CUDA's libraries. `mend_when_imported()` gives it libraries of those names
without content (csrc/nocuda), and its own operators are there: on the CPU, and for tensors on an NPU by torch's way
over the CPU. A build that torch can load is left alone.

`python -m torchport.cuda_builds` makes that permanent for this environment where it is needed (`make setup`).
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from torchport.on_import import before_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# In each package: the module that loads the operators, and the library that holds them. Not the package itself, whose
# name goes by in every `find_spec` of those who ask whether it is installed.
PACKAGES = {
    "torchvision": ("torchvision.extension", "_C*.so"),
    "torchaudio": ("torchaudio._extension", "lib/libtorchaudio*.so"),
}
LIBRARIES = Path(__file__).parent / "vnpu" / "lib" / "nocuda"
CUDA = "libc10_cuda.so"
# Sorts behind __editable__.torchport.pth, which makes the package importable in a checkout.
FILE_NAME = "torchport_cuda_builds.pth"
CALL = "from torchport.cuda_builds import mend_when_imported\n mend_when_imported()"
# What torchvision 0.28 wants to exist while it is imported.
DEFINITIONS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_waits: list[Callable[[], None]] = []
_kept: list[object] = []  # at their end the definitions would be taken away


def mend_when_imported() -> Callable[[], None]:
    """Let `import torchvision` and `import torchaudio` work in this process, whichever builds they are.

    Waits for these imports and does nothing before. Where the stand-ins for CUDA's libraries are missing (a wheel
    without the virtual NPU) torchvision can be imported, and its own operators say that they are not there. Gives
    back a function that cancels the wait.
    """
    if not _waits:  # a .pth file and `torchport run` may both ask
        for name, (module, _) in PACKAGES.items():
            _waits.append(before_import((module,), functools.partial(_mend, name)))
    return _cancel


def _cancel() -> None:
    while _waits:
        _waits.pop()()


def find_broken_library(name: str) -> Path | None:
    """The library of the package `name` that links CUDA while torch is a CPU build; None where nothing is wrong, or
    the package is not installed. Looks at files only.
    """
    folder, torch = _folder(name), _folder("torch")
    if folder is None or torch is None or (torch / "lib" / CUDA).exists():
        return None
    files = sorted(folder.glob(PACKAGES[name][1]))
    return next((path for path in files if CUDA.encode() in path.read_bytes()), None)


def pth_file() -> Path:
    """The file in the site-packages of this Python that mends the packages for plain `python`."""
    import sysconfig  # here, as below: what every start of Python would pay for

    return Path(sysconfig.get_path("purelib")) / FILE_NAME


def mend_for_good() -> Path:
    """Write that file; return its path. Raises `TorchportError` if site-packages cannot be written."""
    from torchport.vnpu import persistence

    return persistence.write_pth_file(
        pth_file(), CALL, hint="Use a virtual environment; `torchport run` needs no file."
    )


def main() -> int:
    """Mend the packages of this environment for good where one of them is broken; always 0."""
    names = [name for name in PACKAGES if find_broken_library(name)]
    if names:
        print(f"{' and '.join(names)} can be imported beside this CPU build of torch: {mend_for_good()}")
    return 0


def _mend(name: str) -> None:
    library = find_broken_library(name)
    if library is None:
        return
    import ctypes

    import torch  # the library links it, and finds the copy that is loaded

    try:
        for path in sorted(LIBRARIES.glob("*.so*")):
            ctypes.CDLL(str(path))  # never closed: while it is loaded, the linker knows its SONAME
        ctypes.CDLL(str(library))
    except OSError:  # no stand-ins, or a build that links more than they have
        if name == "torchvision":
            operators = torch.library.Library(name, "DEF")
            for operator in DEFINITIONS:
                operators.define(operator + SIGNATURE)
            _kept.append(operators)


def _folder(name: str) -> Path | None:
    from importlib.util import find_spec

    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


if __name__ == "__main__":
    sys.exit(main())
