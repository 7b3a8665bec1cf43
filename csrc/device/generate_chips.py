"""Turn the chip profiles into C++: generate_chips.py devices.toml chips.inc

Writes one initializer per chip, for an array of a struct with these fields in this order:

    const char* name; int cube_cores; int vector_cores; uint64_t memory_bytes; uint64_t context_bytes;
    double bandwidth_gbs; double clock_ghz; uint64_t l2_bytes; bool nd_native; bool bf16; bool inf_nan;
    bool unified; bool a3; Generation generation; TimeModel time; const char* lacking;

The fields and units are documented in the head of devices.toml. Runs at build with any Python >= 3.11.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

FLAGS = ("nd_native", "bf16", "inf_nan", "unified", "a3")
PIECE = 2 << 20  # the runtime gives device memory out in pieces of this size


# As description.h has the units and chip.h the rest; a unit without a rate of its own has none in the table.
RATES = ("", "cube", "depthwise", "stream", "norm", "pool", "move", "gather", "device_cpu", "", "")
REST = (
    "floor_us",
    "device_cpu_us",
    "host_us",
    "l2_gbs",
    "l2_share",
    "pcie_gbs",
    "copy_us",
    "hccs_gbs",
    "roce_gbs",
    "collective_us",
)


def time_model(chips: dict[str, Any], name: str) -> dict[str, float]:
    """A chip's time constants; those that it does not have itself are of the chip that `like` names."""
    table = chips[name]["time"]
    own = {key: row["value"] for key, row in table.items() if key != "like"}
    return {**time_model(chips, table["like"]), **own} if "like" in table else own


def time_initializer(times: dict[str, float]) -> str:
    """A TimeModel; raises KeyError naming a constant that is missing."""
    rates = ", ".join(str(float(times[key])) if key else "0" for key in RATES)
    return f"{{{{{rates}}}, {', '.join(str(float(times[key])) for key in REST)}}}"


def initializer(name: str, chip: dict[str, Any], times: str) -> str:
    """One row of the array; raises KeyError naming a field that the profile lacks."""
    if "lacking" in chip:
        return f'{{"{name}", 0, 0, 0, 0, 0, 0, 0, false, false, false, false, false, {{}}, {{}}, "{chip["lacking"]}"}},'
    memory = int(chip.get("usable_gib", chip["memory_gib"]) * 2**30) // PIECE * PIECE
    context = int(chip.get("context_gib", 0) * 2**30) // PIECE * PIECE
    flags = ", ".join(str(chip[name]).lower() for name in FLAGS)
    return (
        f'{{"{name}", {chip["cube_cores"]}, {chip["vector_cores"]}, {memory}ull, {context}ull, '
        f"{chip['bandwidth_gbs']}, {chip['clock_ghz']}, {chip['l2_mib']}ull << 20, "
        f"{flags}, Generation::k{chip['operators']}, {times}, nullptr}},"
    )


def main(profiles: str, output: str) -> None:
    """Read `profiles` (TOML), write `output` (C++ initializers)."""
    chips = tomllib.loads(Path(profiles).read_text(encoding="utf-8"))
    rows = [
        initializer(name, chip, "" if "lacking" in chip else time_initializer(time_model(chips, name)))
        for name, chip in chips.items()
    ]
    Path(output).write_text("\n".join(["// Generated from devices.toml; do not edit.", *rows, ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
