"""The Python packages that training on an NPU needs, found without importing one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from torchport import vnpu
from torchport.doctor.check import Check, Machine
from torchport.errors import TorchportError
from torchport.vnpu import wheels

INSTALL = f"pip install torch=={wheels.SUPPORTED} torch-npu=={wheels.SUPPORTED}"
# What torch_npu imports, and what recordings and dumps are written with.
NEEDED = {"numpy": "pip install 'numpy>=2'", "yaml": "pip install pyyaml"}


def list_checks(machine: Machine) -> Iterator[Check]:
    """torch and torch_npu in the versions that go together, and what they import."""
    yield _wheel("torch", machine.kind)
    yield _wheel("torch_npu", machine.kind)
    if is_package_installed("torch_npu"):
        for name, install in NEEDED.items():
            if not is_package_installed(name):
                yield Check(name, False, "not installed, and torch_npu imports it", install)
    yield check_hdf5(machine)
    if shadow := _shadow(machine):
        yield Check(
            "import path",
            False,
            f"{shadow} is found first when a script imports torch, and is no installed torch",
            f"Start Python from another folder, or take {shadow.parent} out of PYTHONPATH.",
        )


def is_package_installed(name: str) -> bool:
    """Whether a package of this name can be found; nothing is imported."""
    return importlib.util.find_spec(name) is not None


def check_hdf5(machine: Machine) -> Check:
    """h5py, which brings HDF5; a dump of tensors needs it, training does not."""
    if not is_package_installed("h5py"):
        return Check("hdf5", True, "h5py is not installed: needed for dumps of tensors only (pip install h5py)")
    try:
        version = importlib.metadata.version("h5py")
    except importlib.metadata.PackageNotFoundError:
        fix = "pip install --force-reinstall h5py"
        return Check("hdf5", False, "h5py is there without its metadata: half an installation", fix)
    return Check("hdf5", True, f"h5py {version}")


def _wheel(name: str, kind: vnpu.Kind) -> Check:
    try:
        wheel = wheels.find_wheel(name)
    except TorchportError as error:
        return Check(name, False, error.message, error.hint)
    if wheel is None:
        return Check(name, False, "not installed", INSTALL)
    if problem := wheels.cuda_problem(wheel):
        return Check(name, False, wheel.version, problem)
    # A CANN has the versions of torch_npu that it goes with; the virtual NPU has one.
    right = kind is vnpu.Kind.CANN or wheel.version.partition("+")[0] == wheels.SUPPORTED
    if not right:
        return Check(name, False, f"{wheel.version}, but the virtual NPU is made for {wheels.SUPPORTED}", INSTALL)
    if name == "torch_npu" and (other := _other_torch(wheel.version)):
        release = ".".join(wheel.version.partition("+")[0].split(".")[:3])
        return Check(name, False, f"{wheel.version}, but torch is {other}", f"pip install torch=={release}")
    return Check(name, True, wheel.version)


def _other_torch(npu: str) -> str:
    """The version of torch where it is not the one of this torch_npu; releases after the third number are patches."""
    try:
        torch = wheels.find_wheel("torch")
    except TorchportError:
        return ""  # said of torch
    if torch is None:
        return ""
    ours, theirs = (version.partition("+")[0].split(".")[:3] for version in (npu, torch.version))
    return "" if ours == theirs else torch.version


def _shadow(machine: Machine) -> Path | None:
    """A folder `torch` in PYTHONPATH that is torch's source and not an installed torch."""
    for entry in filter(None, machine.environ.get("PYTHONPATH", "").split(os.pathsep)):
        folder = Path(entry, "torch")
        if (folder / "__init__.py").exists() and not list(folder.glob("_C*")) + list(folder.glob("lib/libtorch*")):
            return folder
    return None
