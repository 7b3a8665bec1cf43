"""Make MindSpore in this process, and in its children, use the virtual NPU.

MindSpore opens its own library for Ascend when it is imported; that names CANN's without a path. As for torch_npu, the
libraries are loaded before by path, and children find them through LD_LIBRARY_PATH. libopapi is made of torch's
kernels: torch's libraries are loaded before it, from where `import torch` takes them, before or after.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

from torchport.errors import TorchportError
from torchport.on_import import before_import
from torchport.vnpu import homes
from torchport.vnpu.backend import BUILD_HINT, Backend, Kind, detect, library_directory
from torchport.vnpu.mindspore import home, wheels

# Loaded in this order, then the others.
FIRST = ("libvnpu.so", "libascendcl.so", "libhccl.so", "libopapi.so")
TORCH = ("libc10.so", "libtorch_cpu.so")
# Kernels that MindSpore brings as binaries for the AI Core. Where they cannot be loaded and `infer_boost` is on,
# MindSpore 2.10 calls them all the same, through a null pointer; switched off, it looks for CANN's operator.
SWITCHED_OFF = {"MS_ENABLE_INTERNAL_KERNELS": "off"}


def activate() -> Backend:
    """Make `import mindspore` in this process use the virtual NPU. Call it before that import.

    Changes `os.environ` (see `environment`), `sys.path` and `sys.meta_path`; loads nothing yet. Raises `TorchportError`
    if MindSpore is imported already, or cannot run here.
    """
    if "mindspore" in sys.modules:
        if os.environ.get("ASCEND_HOME_PATH") == str(home.HOME):
            return _backend(os.environ)
        raise TorchportError(
            "MindSpore is imported already; it cannot change to the virtual NPU in this process.",
            hint="Call torchport.vnpu.activate(mindspore=True) before the first `import mindspore`.",
        )
    os.environ.update(environment())
    python = str(home.PYTHON)
    if python not in sys.path:
        sys.path.insert(0, python)
    before_import(("mindspore",), _preload)
    return _backend(os.environ)


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a process needs so that its MindSpore uses the virtual NPU.

    `environ` is the environment they will be merged into (default: this process's): paths are put in front of what it
    holds. Raises `TorchportError` where the virtual NPU is not built, or the packages are not those it needs.
    """
    environ = os.environ if environ is None else environ
    if problems := wheels.find_problems():
        raise TorchportError(" ".join(each.sentence for each in problems), hint=f"{problems[0].command}")
    _backend(environ)
    libraries = [str(home.complete_lib64()), str(wheels.torch_libraries())]
    return {
        **homes.build_home_environment(str(home.HOME), libraries, environ),
        **SWITCHED_OFF,
        "PYTHONPATH": homes.in_front([str(home.PYTHON)], environ.get("PYTHONPATH", "")),
    }


def _backend(environ: Mapping[str, str]) -> Backend:
    if environ.get("TORCHPORT_BACKEND") == "cann":
        raise TorchportError(
            "TORCHPORT_BACKEND=cann, but MindSpore finds a real CANN by itself.",
            hint="`source` its set_env.sh, or set TORCHPORT_BACKEND=vnpu.",
        )
    backend = detect({**environ, "TORCHPORT_BACKEND": "vnpu"})
    if backend.kind is Kind.NONE:
        raise TorchportError(f"There is no virtual NPU. {backend.reason}", hint=BUILD_HINT)
    return backend._replace(libraries=library_directory() / "cann" / "lib64", home=home.HOME)


def _preload() -> None:
    """Load torch's libraries and then ours; doing so again only counts references up."""
    folder, torch = home.complete_lib64(), wheels.torch_libraries()
    ours = sorted(path.name for path in folder.glob("*.so"))
    ours.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    for path in [*(torch / name for name in TORCH), *(folder / name for name in ours)]:
        try:
            ctypes.CDLL(str(path))
        except OSError as error:
            raise ImportError(
                f"torchport cannot load {path}: {error}. `torchport doctor` shows what is missing; if torch has "
                "changed since the virtual NPU was built, build it again (`make build`)."
            ) from error
