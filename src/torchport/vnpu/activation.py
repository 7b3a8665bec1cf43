"""Make torch_npu in this process, and in its children, load the chosen backend.

torch_npu's extension module names CANN's libraries (libascendcl.so, libhccl.so ...) without a path. The
dynamic linker reads LD_LIBRARY_PATH only when a process starts, so for a running process the libraries are
loaded beforehand by path; each has a SONAME, which makes the linker take the loaded one when it meets the
bare name, also in a later dlopen("libopapi.so").

When: libopapi links libtorch_cpu, which takes 0.14 s to load and must be the copy that `import torch` brings.
So `activate()` itself loads nothing; it waits for the import of `torch_npu._C`, the first module that links
CANN: at that moment torch is loaded and torch_npu's libraries are not.

Children: LD_LIBRARY_PATH and the rest of `environment()` are put into `os.environ`, so that spawned
DataLoader workers and the processes of torchrun find the libraries through the linker, without any hook.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from torchport.collector import spare_modules
from torchport.errors import TorchportError
from torchport.on_import import before_import
from torchport.vnpu import homes
from torchport.vnpu.backend import BUILD_HINT, Backend, Kind, detect
from torchport.vnpu.backward_threads import await_backward_at_exit
from torchport.vnpu.stopped import restart_at_exit

# The module whose import makes the dynamic linker look for CANN.
EXTENSION = "torch_npu._C"
# What libtorch_npu 2.13 links, for a CANN that the linker does not find by itself.
LINKED = (
    "libascendcl.so",
    "libhccl.so",
    "libacl_op_compiler.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
)
# What the other libraries of the virtual NPU link. Loaded first: the linker would look for these names in
# LD_LIBRARY_PATH before it looks beside the library that needs them, and find a CANN whose set_env.sh was sourced.
NEEDED = ("libvnpu.so", "libascendcl.so", "libhccl.so", "libopapi.so")
# Where torch_npu's profiler finds msprof: below tools/profiler of a folder whose path has no other "tools" in it.
PROGRAMS = "tools/profiler/bin"
# What bash sets for itself: no effect of a script that it sources.
SHELL_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})


def activate(force: bool = False, *, mindspore: bool = False) -> Backend:
    """Make `import torch` (or `import torch_npu`) in this process use the backend of this machine.

    Call it before torch_npu is imported; calling it again does nothing. `force` chooses the virtual NPU even
    where CANN and an NPU are found. With `mindspore` it is `import mindspore` that will use the virtual NPU
    (torchport.vnpu.mindspore), and torch_npu is left alone. Returns what was chosen. Changes `os.environ` (see
    `environment`) and `sys.meta_path`; loads nothing yet.

    Raises `TorchportError` if there is no backend, or if torch_npu is already loaded with another one.
    """
    if mindspore:
        from torchport.vnpu import mindspore as other  # a program for torch_npu does not pay for it

        return other.activate()
    if force:
        os.environ["TORCHPORT_BACKEND"] = Kind.VNPU
    backend = detect()
    if backend.kind is Kind.NONE:
        raise TorchportError(f"There is no NPU backend. {backend.reason}", hint=BUILD_HINT)
    if EXTENSION in sys.modules:
        _check_loaded(backend)
        return backend
    os.environ.update(_environment(backend, os.environ))
    if backend.kind is Kind.VNPU:
        spare_modules()
    if backend.libraries is not None:
        before_import((EXTENSION,), functools.partial(_preload, backend.kind, backend.libraries))
    return backend


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a child process needs so that its torch_npu uses the backend of this machine.

    `environ` is the environment they will be merged into (default: this process's): paths are put in front of
    what it holds. For CANN these are what its set_env.sh exports; none if that has been sourced already (its
    libraries are in LD_LIBRARY_PATH).

    Raises `TorchportError` if there is no backend, or no chip as VNPU_SOC wants it.
    """
    environ = os.environ if environ is None else environ
    backend = detect(environ)
    if backend.kind is Kind.NONE:
        raise TorchportError(f"There is no NPU backend. {backend.reason}", hint=BUILD_HINT)
    return _environment(backend, environ)


def _environment(backend: Backend, environ: Mapping[str, str]) -> dict[str, str]:
    if backend.kind is Kind.CANN:
        return _cann_environment(backend, environ)
    home = str(backend.home)
    # Where there is none, one made here would hide what the process has that it is merged into.
    programs = {"PATH": homes.in_front([f"{home}/{PROGRAMS}"], environ["PATH"])} if environ.get("PATH") else {}
    return {**homes.build_home_environment(home, [str(backend.libraries)], environ), **programs}


def _cann_environment(backend: Backend, environ: Mapping[str, str]) -> dict[str, str]:
    """What CANN's own set_env.sh would change; nothing where it has been sourced or is not there."""
    import subprocess  # here, because it takes a third of this module's time to import

    if backend.home is None or backend.libraries is None:
        return {}
    inherited = {Path(path).resolve() for path in environ.get("LD_LIBRARY_PATH", "").split(":") if path}
    if environ.get("ASCEND_HOME_PATH") and backend.libraries.resolve() in inherited:
        return {}
    scripts = [path / "set_env.sh" for path in (backend.home, backend.home.parent)]  # cann/; ascend-toolkit/latest/
    script = next(filter(Path.exists, scripts), None)
    if script is None:
        return {}
    command = ["bash", "-c", 'source "$0" >/dev/null && env -0', str(script)]
    result = subprocess.run(command, env=dict(environ), capture_output=True, check=False)
    if result.returncode != 0:
        raise TorchportError(
            f"CANN's {script} fails: {result.stderr.decode(errors='replace').strip()}",
            hint="Repair CANN, source a working set_env.sh, or set TORCHPORT_BACKEND=vnpu.",
        )
    pairs = (entry.partition("=") for entry in result.stdout.decode(errors="surrogateescape").split("\0") if entry)
    return {name: value for name, _, value in pairs if environ.get(name) != value and name not in SHELL_OWN}


def _check_loaded(backend: Backend) -> None:
    """torch_npu is loaded: fine if it got this backend's libraries (say through LD_LIBRARY_PATH)."""
    loaded = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libascendcl" in line
    }
    if backend.kind is Kind.VNPU and str((backend.libraries or Path()) / "libascendcl.so") not in loaded:
        raise TorchportError(
            f"torch_npu is already loaded with {', '.join(sorted(loaded)) or 'another CANN'}; "
            "it cannot change to the virtual NPU in this process.",
            hint="Call torchport.vnpu.activate() before the first `import torch`.",
        )


def _preload(kind: Kind, folder: Path) -> None:
    """Load the libraries; doing so again only counts references up."""
    ours = sorted(path.name for path in folder.glob("*.so"))
    names = (
        LINKED
        if kind is Kind.CANN
        else sorted(ours, key=lambda name: NEEDED.index(name) if name in NEEDED else len(NEEDED))
    )
    for path in [folder / name for name in names]:
        try:
            ctypes.CDLL(str(path))  # never closed: while it is loaded, the linker knows its SONAME
        except OSError as error:
            raise ImportError(
                f"torchport cannot load {path}: {error}. `torchport doctor` shows what is missing; if torch "
                "or torch_npu has changed since the virtual NPU was built, build it again (`make build`)."
            ) from error
    if kind is Kind.VNPU:
        await_backward_at_exit()
        restart_at_exit()
