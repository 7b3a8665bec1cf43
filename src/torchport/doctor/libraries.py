"""CANN's libraries: which file each name is found as, by which path, and whether two CANNs are mixed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torchport import vnpu
from torchport.doctor.check import Check, Machine
from torchport.errors import TorchportError

# What torch_npu is linked with or opens by name (ldd, FunctionLoader.cpp).
NAMES = (
    "libascendcl.so",
    "libhccl.so",
    "libopapi.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
    "libacl_op_compiler.so",
)
HAL = "libascend_hal.so"


def list_checks(machine: Machine) -> Iterator[Check]:
    """Nothing where there is no backend: that is said of the device."""
    backend = machine.backend
    if isinstance(backend, TorchportError) or backend.kind is vnpu.Kind.NONE:
        return
    found = {name: _find(machine, name, backend) for name in NAMES}
    missing = [name for name, places in found.items() if not places]
    places = sorted({str(place.parent) for files in found.values() for place in files[:1]})
    if missing and backend.libraries is not None:
        again = "make build" if backend.kind is vnpu.Kind.VNPU else "source set_env.sh"
        yield Check("libraries", False, f"{', '.join(missing)} not found in {', '.join(places) or 'any path'}", again)
    else:
        yield Check("libraries", True, f"{len(NAMES)} in {', '.join(places) or 'the linker cache'}")
    roots = {_root(place): place for files in found.values() for place in files}
    if backend.kind is vnpu.Kind.CANN:
        if len(roots) > 1:
            fix = "Open a new shell and source the set_env.sh of one CANN only."
            yield Check("one cann", False, f"LD_LIBRARY_PATH mixes {' and '.join(sorted(map(str, roots)))}", fix)
        if not _find(machine, HAL, backend):
            fix = "export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64/driver:$LD_LIBRARY_PATH"
            yield Check("driver library", False, f"{HAL} is not found: no driver here, or it is not mounted", fix)


def _find(machine: Machine, name: str, backend: vnpu.Backend) -> list[Path]:
    """All files of this name in the order in which the dynamic linker would take them."""
    paths = [folder for folder in machine.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders = [machine.resolve_path(folder) if machine.root != Path("/") else Path(folder) for folder in paths]
    if backend.libraries is not None and (backend.kind is vnpu.Kind.VNPU or backend.libraries not in folders):
        folders.insert(0 if backend.kind is vnpu.Kind.VNPU else len(folders), backend.libraries)
    usual = "/usr/local/Ascend/driver/lib64"
    folders += [machine.resolve_path(f"{usual}/{part}") for part in ("driver", "common", "")]
    return list(dict.fromkeys((folder / name) for folder in folders if (folder / name).exists()))


def _root(library: Path) -> Path:
    """The CANN that a library belongs to: the folder above lib64, runtime/lib64, x86_64-linux/lib64."""
    folder = library.resolve().parent
    while folder.name in ("lib64", "lib", "runtime", "compiler", "x86_64-linux", "aarch64-linux", "opp"):
        folder = folder.parent
    return folder
