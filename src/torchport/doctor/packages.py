"""The Python packages that training on an NPU needs, found without importing one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator

from torchport import vnpu
from torchport.doctor import search_path
from torchport.doctor.check import Check, Machine
from torchport.doctor.damage import Damage, find_damage
from torchport.doctor.search_path import find_package, list_distributions
from torchport.errors import TorchportError
from torchport.vnpu import wheels

INSTALL = f"pip install torch=={wheels.SUPPORTED} torch-npu=={wheels.SUPPORTED}"
# What torch_npu imports, and what recordings and dumps are written with.
NEEDED = {"numpy": "pip install 'numpy>=2'", "yaml": "pip install pyyaml"}


def list_checks(machine: Machine) -> Iterator[Check]:
    """torch and torch_npu in the versions that go together, what they import, and what hides them."""
    yield _wheel(machine, "torch")
    yield _wheel(machine, "torch_npu")
    if is_package_installed("torch_npu"):
        for name, install in NEEDED.items():
            if not is_package_installed(name):
                yield Check(name, False, "not installed, and torch_npu imports it", install)
        if damage := find_damage(machine, "numpy", NEEDED["numpy"]) or _newer_numpy(machine):
            yield Check("numpy", False, damage.detail, damage.fix)
    yield check_hdf5(machine)
    yield from search_path.list_checks(machine)


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


def _wheel(machine: Machine, name: str) -> Check:
    if damage := find_damage(machine, name, f"pip install {name.replace('_', '-')}=={_release_to_install(machine)}"):
        return Check(name, False, damage.detail, damage.fix)
    try:
        wheel = _find_wheel(machine, name)
    except TorchportError as error:
        return Check(name, False, error.message, error.hint)
    if wheel is None:
        return Check(name, False, "not installed", INSTALL)
    if problem := wheels.cuda_problem(wheel):
        return Check(name, False, wheel.version, problem)
    # A CANN has the versions of torch_npu that it goes with; the virtual NPU has one.
    right = machine.kind is vnpu.Kind.CANN or wheel.version.partition("+")[0] == wheels.SUPPORTED
    if not right:
        return Check(name, False, f"{wheel.version}, but the virtual NPU is made for {wheels.SUPPORTED}", INSTALL)
    if name == "torch_npu" and (other := _other_torch(machine, wheel.version)):
        release = ".".join(wheel.version.partition("+")[0].split(".")[:3])
        return Check(name, False, f"{wheel.version}, but torch is {other}", f"pip install torch=={release}")
    return Check(name, True, wheel.version)


def _release_to_install(machine: Machine) -> str:
    """The release of torch and torch_npu for this machine: with CANN, that of the one of the two that is whole."""
    if machine.kind is vnpu.Kind.CANN:
        for name in ("torch", "torch_npu"):
            if release := _read_release(machine, name):
                return ".".join(map(str, release))
    return wheels.SUPPORTED


def _read_release(machine: Machine, name: str) -> tuple[int, ...]:
    """The three numbers of the version of torch or torch_npu; none if it is not whole."""
    try:
        wheel = None if find_damage(machine, name, "") else _find_wheel(machine, name)
    except TorchportError:
        wheel = None
    return tuple(map(int, re.findall(r"\d+", wheel.version.partition("+")[0])[:3])) if wheel else ()


def _newer_numpy(machine: Machine) -> Damage | None:
    """A torch before 2.3 is compiled for numpy 1, and works without numpy beside numpy 2."""
    origin, torch = find_package(machine, "numpy").origin, _read_release(machine, "torch")
    noted = list_distributions("numpy", [origin.parents[1]]) if origin else []
    if not torch or torch >= (2, 3) or not noted or not noted[0].version.startswith("2."):
        return None
    release = ".".join(map(str, torch))
    return Damage(f"{noted[0].version}, but torch {release} is compiled for numpy 1", "pip install 'numpy<2'")


def _find_wheel(machine: Machine, name: str) -> wheels.Wheel | None:
    """The installed package, behind what hides it."""
    package = find_package(machine, name)
    if not package.shadows:
        return wheels.find_wheel(name)
    return None if package.origin is None else wheels.read_wheel(name, package.origin)


def _other_torch(machine: Machine, npu: str) -> str:
    """The version of torch where it is not the one of this torch_npu; releases after the third number are patches."""
    try:
        torch = _find_wheel(machine, "torch")
    except TorchportError:
        return ""  # said of torch
    if torch is None:
        return ""
    ours, theirs = (version.partition("+")[0].split(".")[:3] for version in (npu, torch.version))
    return "" if ours == theirs else torch.version
