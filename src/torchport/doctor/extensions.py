"""torchvision and torchaudio: whether they go with this torch, by their metadata and, if tried, by their import."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from torchport import cuda_builds
from torchport.doctor.check import Check, Machine
from torchport.doctor.damage import find_damage
from torchport.doctor.import_errors import FOREIGN_FIX, NUMPY, read_cause, read_last_error
from torchport.doctor.search_path import NEEDED, find_package, find_shadows, list_distributions, list_places
from torchport.errors import TorchportError
from torchport.vnpu import wheels
from torchport.vnpu.probe import run_python

FOREIGN = " (a CUDA build; its CPU operators are used)"
# The libraries with operators, and those that decode images: torchvision hides why they cannot be loaded.
OPERATORS = {"torchvision": ("_C*.so",), "torchaudio": ("lib/libtorchaudio.so", "lib/_torchaudio*.so")}
IMAGES = {"torchvision": ("image*.so",), "torchaudio": ()}
# Imports a package as plain `python` would, then says what the linker says of its libraries.
PROGRAM = """
import ctypes, sys, traceback
name, *libraries = sys.argv[1:]
failed = 0
try:
    print("version", __import__(name).__version__)
except BaseException:
    failed = 1
    traceback.print_exc(file=sys.stdout)
for library in libraries if "torch" in sys.modules else ():
    try:
        ctypes.CDLL(library)
    except OSError as error:
        print("linker", library, error, sep="|")
sys.exit(failed)
"""


def list_checks(machine: Machine, timeout: float | None) -> Iterator[Check]:
    """A line for each of them that is installed. None is imported if `timeout` (seconds) is None."""
    for name in cuda_builds.PACKAGES:
        check = _check(machine, name, timeout)
        if check is not None:
            yield check


def _check(machine: Machine, name: str, timeout: float | None) -> Check | None:
    torch = _version(machine, "torch")
    install = f"pip install {name}" + (f" torch=={torch.version.partition('+')[0]}" if torch else "")
    if damage := find_damage(machine, name, install):
        return Check(name, False, damage.detail, damage.fix)
    package = find_package(machine, name)
    if package.origin is None:
        return None
    install = package.to_install(install)
    ours = _version(machine, name)
    version = "of unknown version" if ours is None else ours.version
    if torch is not None and (wanted := _wanted_torch(machine, name)) and not _goes_with(torch.version, wanted):
        detail = f"{version} is built for torch {wanted} (its Requires-Dist), and torch is {torch.version}"
        return Check(name, False, detail, install)
    if torch is not None and ours is not None and (other := _other_cuda(ours.version, torch)):
        detail = f"{version} is built for CUDA {other}, and torch {torch.version} for CUDA {torch.cuda}"
        return Check(name, False, detail, f"{install}, from the index that torch was installed from")
    if _lacks_pillow(machine, name):
        return Check(name, False, f"{version} imports pillow, which is not installed", "pip install pillow")
    if find_shadows(machine, name, *NEEDED):
        return Check(name, True, f"{version}, not imported: see `import path`")
    library = cuda_builds.find_broken_library(name)
    if timeout is None:
        if library is not None and not cuda_builds.pth_file().exists():
            return Check(name, False, f"{version} is built for CUDA ({library.name}), and torch is not", FOREIGN_FIX)
        return Check(name, True, f"{version}{FOREIGN if library else ''}, not imported")
    return _import(name, package.origin.parent, version, install, timeout, foreign=library is not None)


def _import(name: str, folder: Path, version: str, install: str, timeout: float, *, foreign: bool) -> Check:
    files = {
        kind: [str(path) for pattern in kinds[name] for path in sorted(folder.glob(pattern))]
        for kind, kinds in (("operators", OPERATORS), ("images", IMAGES))
    }
    words = ["-c", PROGRAM, name, *files["operators"], *files["images"]]
    output, status = run_python(words, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, timeout)
    lines = output.splitlines()
    refused = dict(line.split("|", 2)[1:] for line in lines if line.startswith("linker|") and line.count("|") > 1)
    said = "\n".join(line for line in lines if not line.startswith("linker|"))
    version = next((line[8:] for line in lines if line.startswith("version ")), version)
    linker = "".join(f"\nlinker {error}" for file, error in refused.items() if file in files["operators"])
    if status != 0:
        cause = read_cause(said + linker, name, install)
        if cause is not None:
            return Check(name, False, f"{version} cannot be imported: {cause.words}", cause.fix)
        last = read_last_error(said) or f"exit status {status}"
        again = f"`python -c 'import {name}'` says more. If it goes with another torch: {install}"
        return Check(name, False, f"{version} cannot be imported: {last}", again)
    if cause := read_cause(said, name, install, NUMPY):
        return Check(name, False, f"{version} can be imported, but torch works without numpy: {cause.words}", cause.fix)
    if cause := read_cause(linker, name, install):
        detail = f"{version} can be imported, but not its operators: {cause.words}"
        return Check(name, False, detail, cause.fix)
    images = "".join(f"\nlinker {error}" for file, error in refused.items() if file in files["images"])
    if cause := read_cause(images, name, install):
        detail = f"{version} can be imported, but {name}.io does not decode images: {cause.words}"
        return Check(name, False, detail, cause.fix, advice=True)
    return Check(name, True, f"{version}{FOREIGN if foreign else ''}")


def _version(machine: Machine, name: str) -> wheels.Wheel | None:
    """The package that is installed; None if it is not, or does not say its version."""
    origin = find_package(machine, name).origin
    try:
        return None if origin is None else wheels.read_wheel(name, origin)
    except TorchportError:
        return None


def _requirements(machine: Machine, name: str) -> list[str]:
    """The requirements in the metadata of a package that hold in every environment."""
    shadowing = {shadow.place for shadow in find_shadows(machine, name)}
    folders = [place.folder for place in list_places(machine) if place not in shadowing]
    return [line for noted in list_distributions(name, folders)[:1] for line in noted.requires or [] if ";" not in line]


def _wanted_torch(machine: Machine, name: str) -> str:
    """The version of torch that a package demands by `==`; "" if it demands none."""
    found = (re.fullmatch(r"torch\s*\(?\s*={2,3}\s*([\w.+!*]+)\s*\)?", line) for line in _requirements(machine, name))
    return next((match[1] for match in found if match), "")


def _lacks_pillow(machine: Machine, name: str) -> bool:
    """Whether a package requires pillow and nothing that is installed brings PIL."""
    wants = any(re.match(r"pillow\b", line, re.IGNORECASE) for line in _requirements(machine, name))
    return wants and find_package(machine, "PIL").origin is None


def _goes_with(version: str, wanted: str) -> bool:
    """Whether a version meets `==wanted`. The local part (+cpu) counts only if `wanted` has one; `.*` is any end."""
    if "+" not in wanted:
        version = version.partition("+")[0]
    if wanted.endswith(".*"):
        return f"{version}.".startswith(wanted[:-1])
    return _strip(version) == _strip(wanted)


def _strip(version: str) -> str:
    return re.sub(r"(?:\.0)+$", "", version.lower())


def _other_cuda(version: str, torch: wheels.Wheel) -> str:
    """The major version of CUDA in `+cu121`, if it is not that of this torch; "" for a torch without CUDA."""
    match = re.search(r"\+cu(\d+)\d$", version)
    if match is None or torch.cuda is None or match[1] == torch.cuda.partition(".")[0]:
        return ""
    return match[1]
