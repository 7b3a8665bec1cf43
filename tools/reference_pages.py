"""Write the generated pages of docs/reference: variables, chips, operators.

  python tools/reference_pages.py            write all
  python tools/reference_pages.py chips      write one
  python tools/reference_pages.py --check    exit code 1 and the names of pages that are out of date

The operator page needs the built virtual NPU (operators.json).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from torchport import vnpu
from torchport.vnpu.chips import chips
from torchport.vnpu.variables import VARIABLES

DOCS = Path(__file__).resolve().parent.parent / "docs" / "reference"


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def page(title: str, source: str, *parts: str) -> str:
    """A page with its title and its origin."""
    return "\n\n".join([f"# {title}", f"Generated from {source} by `make docs`; do not edit.", *parts]) + "\n"


def variables() -> str:
    """The environment variables of the virtual NPU."""
    rows = ([f"`{row.name}`", row.default or "unset", row.meaning] for row in VARIABLES)
    return page(
        "Environment variables",
        "`src/torchport/vnpu/variables.py`",
        "The variables of torch_npu and CANN themselves (TASK_QUEUE_ENABLE, ASCEND_LAUNCH_BLOCKING, "
        "PYTORCH_NPU_ALLOC_CONF ...) keep their meaning.",
        table(["variable", "default", "meaning"], rows),
    )


def chip_profiles() -> str:
    """The chips that VNPU_SOC can select."""
    rows = (
        [
            f"`{name}`",
            f"{chip['cube_cores']} / {chip['vector_cores']}",
            chip["clock_ghz"],
            chip["memory_gib"],
            f"{chip['bandwidth_gbs']:g}",
            chip["l2_mib"],
            "yes" if chip["bf16"] else "no",
            chip["source"],
        ]
        for name, chip in chips().items()
    )
    head = [
        "VNPU_SOC",
        "cube / vector cores",
        "GHz",
        "GiB",
        "GB/s",
        "L2 MiB",
        "bfloat16",
        "source of the constants",
    ]
    return page("Chips", "`src/torchport/knowledge/devices.toml`", table(head, rows))


def operators() -> str:
    """What the virtual NPU implements of what torch_npu can ask for."""
    rows = vnpu.operators()
    counts = Counter((row["tier"], row["status"]) for row in rows)
    states = ("implemented", "gap", "unexported")
    summary = table(
        ["tier", *states],
        (
            [tier, *(counts[tier, state] for state in states)]
            for tier in sorted({row["tier"] for row in rows})
        ),
    )
    done = table(
        ["operator", "tier", "family"],
        ([f"`{row['name']}`", row["tier"], row["family"]] for row in rows if row["status"] == "implemented"),
    )
    return page(
        "Operators of the virtual NPU",
        "`operators.json`, which the build writes from the lines that define the operators",
        "*gap*: exported, answers with an error that says the virtual NPU lacks it (the hardware has it). "
        "*unexported*: left out on purpose, so that torch_npu takes its other path. "
        "`torchport vnpu ops` lists everything, with reasons.",
        summary,
        done,
    )


PAGES = {
    "variables": variables,
    "chips": chip_profiles,
    "operators": operators,
}


def main() -> int:
    """Write or check the pages; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("names", nargs="*", default=list(PAGES), help=", ".join(PAGES))
    arguments = parser.parse_args()
    check, stale = arguments.check, []
    DOCS.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        path, text = DOCS / f"{name}.md", PAGES[name]()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
