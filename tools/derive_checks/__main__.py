"""Derive what CANN's operators check from their sources, and write csrc/opapi/aclnn/checks.json.

  python tools/derive_checks SOURCES                  write the table
  python tools/derive_checks SOURCES aclnnAdd ...     print the rows of some operators
  python tools/derive_checks --engines SOURCES [...]  write csrc/opapi/aclnn/engines.json instead (engines.py), or print
  python tools/derive_checks --compare [CORRECTIONS]  what the table knows, and which corrections (a list of single
                                                      dtypes to accept or refuse) it confirms

SOURCES is a folder with the trees ops-math, ops-nn, ops-cv, ops-transformer and opbase. Per operator of
csrc/opapi/aclnn/signatures.json a line says:

  source      the file whose first phase, or definition, was read; null where there is none
  evidence    code, page, code+page, definition, or null
  page        the page of the operator
  parameters  per tensor and scalar: dtypes that the first phase takes on a 910B ("" for none at all, null where no
              list checks them), 910A and 310P where they take others; except, the dtypes refused where there is no
              list; max_rank; sometimes, where it depends on an attribute or another tensor whether the list is
              looked at; page, what the page lists where that is something else; differs, where both list something
              and the page is not what is executed: the code counts
  attributes  per number that is not taken whatever it is, the ranges that are: "0..2 27", "1..", "0<..1" (more than
              0); on every way, so what another argument decides is not among them
  same        pairs that are refused when their dtypes differ; promotable: pairs that need a common dtype
  incomplete  the walk was too long and what is missing may be checked all the same

What is refused for another attribute, for an empty tensor or by the kernel's tiling is not in the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import engines
from compare import compare
from sources import Sources
from table import read_table, table, written

ACLNN = Path(__file__).resolve().parents[2] / "csrc/opapi/aclnn"


def main() -> int:
    parser = argparse.ArgumentParser(prog="derive_checks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="?")
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--compare", nargs="?", const=Path(), type=Path, metavar="CORRECTIONS")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    # The bodies of functions are walked by functions that call each other.
    sys.setrecursionlimit(20_000)
    if arguments.sources:
        signatures = json.loads((ACLNN / "signatures.json").read_text(encoding="utf-8"))
        if arguments.engines:
            rows = engines.engines(engines.KernelSources(arguments.sources), signatures, arguments.operators)
        else:
            rows = table(Sources(arguments.sources), signatures, arguments.operators)
        if arguments.operators:
            print(written(rows), end="")
            return 0
        output = arguments.output or ACLNN / ("engines.json" if arguments.engines else "checks.json")
        output.write_text(written(rows), encoding="utf-8")
    if arguments.compare is not None:
        corrections = arguments.compare if arguments.compare.is_file() else None
        print("\n".join(compare(read_table(arguments.output or ACLNN / "checks.json"), corrections)))
    elif not arguments.sources:
        parser.print_help()
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
