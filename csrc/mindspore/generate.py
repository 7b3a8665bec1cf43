"""Turn the list of what MindSpore needs into C++: generate.py needed.toml OUTPUT_DIR

Writes OUTPUT_DIR/<library>.cpp for the libraries of CANN whose names are C++ (ge_runner, graph): an entry point for
each name, which refuses (refusal.h). They are weak: what the library's folder defines itself goes before them. Runs at
build, standard library only.
"""

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


def main(needed: Path, output: Path) -> None:
    tables = tomllib.loads(needed.read_text(encoding="utf-8"))
    for library in LIBRARIES:
        (output / f"{library}.cpp").write_text(source(tables[library]["symbols"]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
