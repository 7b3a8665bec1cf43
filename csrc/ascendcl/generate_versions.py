"""Turn the table of versions into C++: generate_versions.py cann.toml versions.inc

Writes the CANN that is claimed by default, and the driver of each, in the order of the table:

    constexpr std::string_view kDefault = "9.1.0";
    constexpr Driver kDrivers[] = {{8, 3, "25.3.RC1"}, ...};

The table is explained in cann.toml. Runs at build with any Python >= 3.11.
"""

import sys
import tomllib
from pathlib import Path


def main(path: str, output: str) -> None:
    """Read the table `path` (TOML), write `output` (C++)."""
    table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    drivers = ", ".join(f'{{{cann.replace(".", ", ")}, "{driver}"}}' for cann, driver in table["driver"].items())
    lines = (
        "// Generated from cann.toml; do not edit.",
        f'constexpr std::string_view kDefault = "{table["default"]}";',
        f"constexpr Driver kDrivers[] = {{{drivers}}};",
    )
    Path(output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
