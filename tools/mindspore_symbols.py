"""List what MindSpore's wheel asks CANN for: mindspore_symbols.py FOLDER_OF_MINDSPORE [--write]

Reads the dynamic symbol tables (with `nm`) of the libraries that MindSpore loads for device_target="Ascend" and
compares with csrc/mindspore/needed.toml, from which the stand-ins for CANN's libraries are generated at build; --write
stores what is found there. Exit code 1 where the two differ: then this is another release of MindSpore.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

LIST = Path(__file__).parents[1] / "csrc" / "mindspore" / "needed.toml"
# Those that are loaded for Ascend, below mindspore/lib. Kernels in binaries for the AI Core (internal, ATB) are not.
LOADED = (
    "plugin/libmindspore_ascend.so.2",
    "plugin/libmindspore_ops_ascend.so",
    "plugin/ascend/libd_collective.so",
    "plugin/ascend/libhccl_plugin.so",
    "plugin/ascend/libmindspore_ascend_res_manager.so",
    "plugin/ascend/libmindspore_graph_ir.so",
    "libmindspore_ge_backend.so",
    "plugin/ascend/ms_kernels_symmetric_memory/shmem/shmem/lib/libshmem.so",
)
# Loaded where a transform of the data pipeline is to run on the device. Of what it asks for only this is its own.
IMAGES = "plugin/ascend/libdvpp_utils.so"
IMAGE_UNITS = re.compile(r"acl(dvpp|vdec)|hi_(mpi|vdec|vpss|venc)_")
# Which library of CANN has a name: the first that matches.
OWNERS = (
    (re.compile(r"_ZNK?2ge(7Session|12GEInitialize|10GEFinalize|20CompiledGraphSummary|13StatusFactory)"), "ge_runner"),
    (re.compile(r"_ZNK?2ge"), "graph"),
    (re.compile(r"(rt|acl)"), "ascendcl"),
    (re.compile(r"hal"), "ascend_hal"),
    (re.compile(r"Hccl"), "hccl"),
)
# Names that MindSpore looks up while it runs, as its libraries hold them.
LOOKED_UP = re.compile(rb"\0((?:acl|Hccl|rt)[A-Za-z0-9]{4,60})(?=\0)")
OPERATOR = re.compile(rb"\0(aclnn[A-Za-z0-9]{2,60})(?=\0)")
HEAD = """\
# What the MindSpore wheel asks CANN's libraries for, found by tools/mindspore_symbols.py; do not edit.
# One table a library of CANN: the names that must be there when MindSpore's own libraries are loaded.
"""


def linked(folder: Path) -> dict[str, list[str]]:
    """The names that the libraries need and neither they nor others of the wheel have, by CANN's library."""
    library = folder / "lib"
    others = [*library.glob("*.so*"), *library.glob("plugin/*.so*"), *library.glob("plugin/ascend/*.so")]
    had = set().union(*(symbols(path, "--defined-only") for path in others if "cpu_kernels" not in path.name))
    needed = set().union(*(symbols(library / name, "--undefined-only") for name in LOADED)) - had
    owners: dict[str, list[str]] = {}
    for name in sorted(needed):
        owner = next((owner for pattern, owner in OWNERS if pattern.match(name)), None)
        if owner is not None:
            owners.setdefault(owner, []).append(name)
    images = symbols(library / IMAGES, "--undefined-only")
    owners["acl_dvpp"] = sorted(name for name in images if IMAGE_UNITS.match(name))
    return dict(sorted(owners.items()))


def symbols(path: Path, which: str) -> set[str]:
    """The dynamic symbols of a library; those of a version belong to the system and are left out."""
    command = ["nm", "--dynamic", "--format=just-symbols", which, str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line for line in listing.split() if "@" not in line}


def operators(folder: Path) -> list[str]:
    """The operators (aclnn...) that its kernels name."""
    found: set[str] = set()
    for name in LOADED[:2]:
        found |= {match.decode() for match in OPERATOR.findall((folder / "lib" / name).read_bytes())}
    return sorted(name for name in found if not name.endswith("GetWorkspaceSize"))


def text(tables: dict[str, list[str]], asked: list[str]) -> str:
    lines = [HEAD]
    for library, names in tables.items():
        lines += [f"[{library}]", "symbols = [", *(f'    "{name}",' for name in names), "]", ""]
    lines += ["# Operators that its kernels look up in libopapi by name.", "[opapi]", "operators = ["]
    return "\n".join([*lines, *(f'    "{name}",' for name in asked), "]", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="site-packages/mindspore of an environment")
    parser.add_argument("--write", action="store_true", help="store what is found")
    arguments = parser.parse_args()
    found = text(linked(arguments.folder), operators(arguments.folder))
    if arguments.write:
        LIST.write_text(found, encoding="utf-8")
        return 0
    then, now = tomllib.loads(LIST.read_text(encoding="utf-8")), tomllib.loads(found)
    for library in sorted({*then, *now}):
        old, new = ({name for names in table.get(library, {}).values() for name in names} for table in (then, now))
        for name in sorted(new - old):
            print(f"{library}: new: {name}")
        for name in sorted(old - new):
            print(f"{library}: gone: {name}")
    return 0 if then == now else 1


if __name__ == "__main__":
    sys.exit(main())
