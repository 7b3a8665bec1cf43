"""Which implementation of the CANN API a process on this machine will use, and why. Looks at files only."""

from __future__ import annotations

import enum
import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torchport.errors import TorchportError

PACKAGE = Path(__file__).resolve().parent
# What torch_npu expects CANN's installation folder to hold: it refuses to start when ASCEND_HOME_PATH lacks
# runtime/ or compiler/, and prints a warning to stdout when the variable is missing (registry_manager.py).
HOME = PACKAGE / "home"
# What to do where neither is found.
BUILD_HINT = (
    "Run `make build` in a checkout, or install torchport beside torch and torch_npu with "
    "`pip install --no-build-isolation`."
)
# Where CANN's installers put it by default (set_env.sh lies there too).
CANN_ROOTS = (
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/latest",
    "~/Ascend/ascend-toolkit/latest",
    "~/Ascend/cann",
)
# What to do where CANN is asked for and not found.
CANN_HINT = "Install CANN and `source` its set_env.sh, or unset TORCHPORT_BACKEND to take what there is."
# The driver's device nodes; containers that may use an NPU have them mapped in.
DEVICE_NODES = "/dev/davinci[0-9]*"
LINKER_CACHE = Path("/etc/ld.so.cache")


class Kind(enum.StrEnum):
    """The implementations of the CANN API."""

    CANN = "cann"
    VNPU = "vnpu"
    NONE = "none"


class Backend(NamedTuple):  # no dataclass: importing those takes longer than the rest of this package
    """The choice for this machine.

    `reason` is a sentence for people. `libraries` holds libascendcl.so and its companions, `home` is what
    ASCEND_HOME_PATH has to be; both are None for kind "none", and `libraries` is None too where the dynamic
    linker finds CANN by itself.
    """

    kind: Kind
    reason: str
    libraries: Path | None = None
    home: Path | None = None


def library_directory() -> Path:
    """The folder of the virtual NPU's shared libraries. It exists only after the C++ part has been built."""
    return Path(os.environ.get("VNPU_LIBRARIES") or PACKAGE / "lib")


def detect(environ: Mapping[str, str] | None = None) -> Backend:
    """Choose the backend for a process with the environment `environ` (default: this process's).

    Real hardware wins: CANN is used where its libraries and a device node are found, else the virtual NPU.
    TORCHPORT_BACKEND=vnpu|cann forces either.

    Raises `TorchportError` if TORCHPORT_BACKEND is something else or asks for what is not there.
    """
    environ = os.environ if environ is None else environ
    forced = environ.get("TORCHPORT_BACKEND") or "auto"
    cann, vnpu = _find_cann(environ), _find_vnpu()
    if forced == "vnpu":
        return _demand(vnpu, "TORCHPORT_BACKEND=vnpu", BUILD_HINT)
    if forced == "cann":
        return _demand(cann, "TORCHPORT_BACKEND=cann", CANN_HINT)
    if forced != "auto":
        raise TorchportError(
            f"TORCHPORT_BACKEND={forced} is not a backend.", hint="Use vnpu, cann or auto, or unset it."
        )
    if cann.kind is Kind.NONE:
        return vnpu if vnpu.kind is Kind.VNPU else vnpu._replace(reason=f"{cann.reason} {vnpu.reason}")
    if glob.glob(DEVICE_NODES):
        return cann
    if vnpu.kind is Kind.NONE:
        return vnpu
    return vnpu._replace(reason=f"{cann.reason} But there is no NPU on this machine (no {DEVICE_NODES}). {vnpu.reason}")


def _demand(backend: Backend, because: str, otherwise: str) -> Backend:
    if backend.kind is Kind.NONE:
        raise TorchportError(f"{because}, but: {backend.reason}", hint=otherwise)
    return backend._replace(reason=f"{because}. {backend.reason}")


def _find_vnpu() -> Backend:
    libraries = library_directory()
    if (libraries / "libascendcl.so").exists():
        return Backend(Kind.VNPU, f"The virtual NPU is built in {libraries}.", libraries, HOME)
    return Backend(Kind.NONE, f"The virtual NPU is not built ({libraries}/libascendcl.so is missing).")


def _find_cann(environ: Mapping[str, str]) -> Backend:
    """CANN in the environment of this process (set_env.sh has run), else where its installers put it."""
    variable = environ.get("ASCEND_HOME_PATH", "")
    if variable and Path(variable).resolve() != HOME:
        libraries = _cann_libraries(Path(variable))
        if libraries is not None:
            return Backend(Kind.CANN, f"CANN is in ASCEND_HOME_PATH={variable}.", libraries, Path(variable))
    for folder in filter(None, environ.get("LD_LIBRARY_PATH", "").split(":")):
        # libvnpu.so: another build of the virtual NPU.
        ours = Path(folder).resolve() == library_directory().resolve() or Path(folder, "libvnpu.so").exists()
        if not ours and Path(folder, "libascendcl.so").exists():
            return Backend(Kind.CANN, f"libascendcl.so is in {folder} (LD_LIBRARY_PATH).", None, None)
    for root in map(os.path.expanduser, CANN_ROOTS):
        libraries = _cann_libraries(Path(root))
        if libraries is not None:
            return Backend(Kind.CANN, f"CANN is installed in {root}.", libraries, Path(root))
    if LINKER_CACHE.exists() and b"libascendcl.so" in LINKER_CACHE.read_bytes():
        return Backend(Kind.CANN, f"libascendcl.so is in the linker's cache {LINKER_CACHE}.", None, None)
    return Backend(Kind.NONE, "CANN is not on this machine.")


def _cann_libraries(home: Path) -> Path | None:
    for folder in (home / "lib64", home / "runtime" / "lib64"):
        if (folder / "libascendcl.so").exists():
            return folder
    return None
