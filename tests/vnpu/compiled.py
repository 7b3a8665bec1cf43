"""C++ programs of the tests: compiled on first use, linked with the libraries under test and with their sanitizer."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

from torchport import vnpu

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
# The options of CMakeLists.txt, by the runtime that an instrumented library names.
SANITIZERS = {
    b"libasan.so": ["-fsanitize=address,undefined", "-fno-sanitize=enum", "-fno-sanitize-recover=undefined"],
    b"libtsan.so": ["-fsanitize=thread"],
}


def program(name: str) -> Path:
    """The executable of programs/NAME.cpp, or of all files in programs/NAME."""
    sources = sorted((PROGRAMS / name).glob("*.cpp")) or [PROGRAMS / f"{name}.cpp"]
    libraries = vnpu.library_directory()
    command = [*_compiler(libraries), *map(str, sources)]
    headers = [*sorted((PROGRAMS / name).glob("*.h")), *sorted((ROOT / "csrc/device").glob("*.h"))]
    texts = [path.read_bytes() for path in [*sources, *headers]]
    key = hashlib.sha256(b"\0".join([" ".join(command).encode(), *texts])).hexdigest()[:16]
    made = ROOT / "build/programs" / f"{name}-{key}"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            unfinished = Path(folder) / name
            result = subprocess.run(
                [*command, "-o", str(unfinished), *_libraries(libraries)],
                capture_output=True,
                text=True,
                env={key: value for key, value in os.environ.items() if key != "LD_PRELOAD"},
            )
            assert result.returncode == 0, result.stderr
            unfinished.rename(made)  # at once: another test process may be here as well
    return made


def _compiler(libraries: Path) -> list[str]:
    instrumented = (libraries / "libvnpu.so").read_bytes()
    sanitizer = next((flags for runtime, flags in SANITIZERS.items() if runtime in instrumented), [])
    return [
        "c++",
        "-std=c++20",
        "-O1",
        "-g1",
        "-Wall",
        "-Wextra",
        "-Werror",
        *sanitizer,
        "-DFMT_SHARED",  # libvnpu has fmt's code
        f"-I{ROOT / 'csrc'}",
        *(word for package in ("torch_npu", "torch") for word in ("-isystem", str(_headers(package)))),
    ]


def _headers(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "include"


def _libraries(libraries: Path) -> list[str]:
    names = ("ascendcl", "hccl", "vnpu")
    return [f"-L{libraries}", f"-Wl,-rpath,{libraries}", *(f"-l{name}" for name in names), "-ldl", "-pthread"]


def run(name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program with these words and environment variables added."""
    environ = os.environ | vnpu.environment() | variables
    return subprocess.run([program(name), *words], env=environ, capture_output=True, text=True, check=False)
