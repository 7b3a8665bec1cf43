"""Turn the list of what MindSpore needs into C++: generate.py needed.toml OUTPUT_DIR

Writes OUTPUT_DIR/<library>.cpp for the libraries of CANN whose names are C++ (ge_runner, graph): an entry point for
each name, which refuses (refusal.h). They are weak: what the library's folder defines itself goes before them. For the
image units (acl_dvpp) likewise, in C (acl_dvpp/images.h). Runs at build, standard library only.
"""

import re
import sys
import tomllib
from pathlib import Path

LIBRARIES = ("ge_runner", "graph")


def source(names: list[str]) -> str:
    lines = ["// Generated from needed.toml; do not edit.", '#include "mindspore/refusal.h"', ""]
    for number, name in enumerate(names):
        lines += [
            f'extern "C" [[gnu::visibility("default"), gnu::weak]] void refused_{number}() __asm__("{name}");',
            f'void refused_{number}() {{ vnpu::mindspore::refuse("{name}"); }}',
        ]
    return "\n".join([*lines, ""])


# What the functions of the image units return that is no code: the addresses of what they make, sizes and formats.
POINTER = re.compile(r"acl(dvpp|vdec)(Create\w+(Desc|Config)|Get(Pic|Stream)DescData)")
NUMBER = re.compile(r"acldvppGetPicDesc\w+|hi_\w+_size")


def images(names: list[str]) -> str:
    lines = ["// Generated from needed.toml; do not edit.", '#include "mindspore/acl_dvpp/images.h"', ""]
    for name in names:
        kind = (
            "void *, void *"
            if POINTER.fullmatch(name)
            else "uint32_t, uint32_t"
            if NUMBER.fullmatch(name)
            else "aclError, void"
        )
        lines.append(f"NO_IMAGES({kind}, {name})")
    return "\n".join([*lines, ""])


def main(needed: Path, output: Path) -> None:
    tables = tomllib.loads(needed.read_text(encoding="utf-8"))
    (output / "acl_dvpp.cpp").write_text(images(tables["acl_dvpp"]["symbols"]), encoding="utf-8")
    for library in LIBRARIES:
        (output / f"{library}.cpp").write_text(source(tables[library]["symbols"]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
