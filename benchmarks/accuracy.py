"""How far gradients on the virtual NPU are from the CPU's: one row for each model family and precision.

    python benchmarks/accuracy.py
    python benchmarks/accuracy.py resnet18 bert --dtype float32 --steps 20 --json

From equal weights at each step (tests/vnpu/models/measure.py says how and why). float32: the relative error of each
parameter's gradient against the CPU's, and the share of steps in which all are within 1e-4. bfloat16 and float16:
the error against float64, and its ratio to the error of the CPU in the same dtype. Parameters whose true gradient is
zero are left out. It judges nothing; tests/vnpu/models/test_gradients.py does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of families, or beginnings (default all)")
    parser.add_argument(
        "--dtype", action="append", choices=("float32", "bfloat16", "float16"), help="default: all three"
    )
    parser.add_argument("--steps", type=int, help="default: 20 or 5, as the family says")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()

    from torchport import vnpu

    vnpu.activate()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "vnpu"))
    import torch
    from models import FAMILIES
    from models.measure import Summary, steps

    chosen = [name for name in FAMILIES if not args.models or name.startswith(tuple(args.models))]
    if not chosen:
        parser.error(f"no family begins with {', '.join(args.models)}; there are {', '.join(FAMILIES)}")
    rows = []
    if not args.json:
        print(
            f"{'model':27} {'dtype':9} {'steps':>5} {'median':>9} {'largest':>9} {'<= 1e-4':>8} {'ratio':>6} {'p90':>6}"
        )
    for name in chosen:
        for dtype in args.dtype or ("float32", "bfloat16", "float16"):
            row = Summary.of(list(steps(FAMILIES[name], getattr(torch, dtype), args.steps)))
            rows.append({"model": name, "dtype": dtype, **dataclasses.asdict(row)})
            if not args.json:
                single = dtype == "float32"
                print(
                    f"{name:27} {dtype:9} {row.steps:5} {row.median:9.1e} {row.largest:9.1e} "
                    + (f"{row.within:8.0%}" if single else f"{'':8} {row.ratio:6.2f} {row.ratio_p90:6.2f}"),
                    flush=True,
                )
    if args.json:
        print(json.dumps({"benchmark": "accuracy", "rows": rows}))


if __name__ == "__main__":
    main()
