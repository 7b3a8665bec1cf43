"""What compiling needs: the virtual NPU, torch_npu or an extension of one's own."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator

from torchport.doctor.check import Check, Machine

GCC = (11, 0)  # C++20 as csrc/ is written
GLIBC = (2, 28)  # of the manylinux_2_28 wheels
INSTALL = "apt-get install g++ cmake ninja-build, or yum install gcc-c++ cmake ninja-build"


def list_checks(machine: Machine) -> Iterator[Check]:
    """gcc, glibc, cmake and ninja: asked for their versions, and nothing is compiled."""
    version = _version("g++")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not version:
        yield Check("gcc", False, "g++ is not installed", INSTALL)
    else:
        old = f", older than {GCC[0]}" if numbers < GCC else ""
        yield Check("gcc", numbers >= GCC, f"{version}{old}", f"apt-get install g++-{GCC[0]}; export CXX=g++-{GCC[0]}")
    name, libc = platform.libc_ver()
    right = name != "glibc" or tuple(map(int, libc.split(".")[:2])) >= GLIBC
    fix = "Use a newer system or container image: the wheels need glibc 2.28 or newer."
    yield Check("glibc", right, f"{name} {libc}", fix)
    for tool in ("cmake", "ninja"):
        found = _version(tool)
        yield Check(tool, bool(found), found or f"{tool} is not installed", f"pip install {tool}")


def _version(program: str) -> str:
    """The first version in what a program says of itself; "" where it is not there."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        ended = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\d+(?:\.\d+)+", ended.stdout)
    return match.group() if match else ""
