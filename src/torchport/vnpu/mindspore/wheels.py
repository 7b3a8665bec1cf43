"""Whether the installed packages are those that MindSpore on the virtual NPU needs. Reads metadata only."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from torchport.vnpu.wheels import SUPPORTED

# The libraries below MindSpore's have the names that this release asks for, and no others.
RELEASE = "2.10"
# What to do where something is missing. `make mindspore` of a checkout makes such an environment.
COMMAND = f"pip install mindspore=={RELEASE}.0 'numpy<2' torch=={SUPPORTED}"


class Problem(NamedTuple):
    """What is wrong with a package, and the command that mends it."""

    package: str
    sentence: str
    command: str


def find_installed_version(package: str) -> str | None:
    """The installed version of `package`, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def find_problems() -> list[Problem]:
    """What keeps MindSpore from running on the virtual NPU in this environment; empty where nothing does."""
    found = []
    mindspore, numpy, torch = map(find_installed_version, ("mindspore", "numpy", "torch"))
    if mindspore is None:
        found.append(Problem("mindspore", "MindSpore is not installed in this environment.", COMMAND))
    elif mindspore.split(".")[:2] != RELEASE.split("."):
        found.append(
            Problem(
                "mindspore",
                f"MindSpore {mindspore} is installed; the virtual NPU has what MindSpore {RELEASE} asks CANN for.",
                COMMAND,
            )
        )
    if numpy is not None and int(numpy.split(".")[0]) >= 2:
        found.append(
            Problem("numpy", f"numpy {numpy} is installed; MindSpore's modules are built for numpy 1.", COMMAND)
        )
    if torch is None:
        found.append(
            Problem("torch", "torch is not installed; the virtual NPU's operators are made of its kernels.", COMMAND)
        )
    elif torch.split("+")[0] != SUPPORTED:
        found.append(
            Problem(
                "torch", f"torch {torch} is installed; the virtual NPU is compiled against torch {SUPPORTED}.", COMMAND
            )
        )
    return found


def torch_libraries() -> Path:
    """The folder of torch's libraries: those of the torch that `import torch` would take, so that there is one copy."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'torch'")
    return Path(spec.origin).parent / "lib"
