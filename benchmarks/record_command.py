"""Cost of `torchport run --record`: processor time of a training step, relative to `torchport run` alone.

    python benchmarks/record_command.py                       # all programs of recorded/, statistics and none
    python benchmarks/record_command.py mlp --rounds 9 --json
    python benchmarks/record_command.py --levels tensor       # at another level

The command as users type it, on npu:0, one thread: each program once for each form, in turn, for as many rounds. A
step's time is the processor time of all threads between two optimizer steps, the median of the run without its first
five steps. Each round gives a ratio; the median counts. Limit at level statistics: 1.35. Exit status 0 when all hold,
1 when one does not. Some programs need what `make libraries` installs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = {path.stem: path for path in sorted((HERE / "recorded").glob("*.py"))}
LIBRARIES = HERE.parent / "build/libraries"
LIMITS = {"statistics": 1.35}
WARM = 5  # steps
# Runs a program, and keeps the processor time at the end of each optimizer step.
TIMED = """
import runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook

times = []
register_optimizer_step_post_hook(lambda *given: times.append(time.process_time()))
out, program = sys.argv[1:]
sys.argv[1:] = []
runpy.run_path(program, run_name="__main__")
with open(out, "w") as file:
    file.write("\\n".join(map(str, times)))
"""


def measure_step(program: Path, level: str) -> float:
    """Median seconds of processor time of a step; `level` "" is the command without --record."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "timed.py").write_text(TIMED, encoding="utf-8")
        record = ["--record", "rec", "--level", level] if level else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(LIBRARIES), os.environ.get("PYTHONPATH")]))
        ended = subprocess.run(
            [sys.executable, "-m", "torchport", "run", "-q", *record, "timed.py", "times.txt", str(program)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise SystemExit(f"{program.name} at level {level or 'off'} has failed: {ended.stderr[-600:]}")
        times = [float(line) for line in (folder / "times.txt").read_text().split()][WARM:]
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times))


def compare_levels(name: str, levels: list[str], rounds: int) -> list[dict[str, Any]]:
    """A row for each level."""
    forms = ["", *levels]
    measured: dict[str, list[float]] = {form: [] for form in forms}
    for turn in range(rounds):
        for form in forms if turn % 2 else reversed(forms):
            measured[form].append(measure_step(PROGRAMS[name], form))
    rows = []
    for level in levels:
        ratios = [one / base for one, base in zip(measured[level], measured[""], strict=True)]
        row: dict[str, Any] = {"program": name, "level": level, "ratio": statistics.median(ratios)}
        row |= {"low": min(ratios), "high": max(ratios), "limit": LIMITS.get(level)}
        row |= {"base_ms": 1e3 * statistics.median(measured[""]), "ms": 1e3 * statistics.median(measured[level])}
        rows.append(row)
    return rows


def main() -> int:
    """Print a row for each program and level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--levels", nargs="+", default=["statistics", "none"], help="(default: statistics none)")
    parser.add_argument("--rounds", type=int, default=3, help="(default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if unknown := set(arguments.programs) - PROGRAMS.keys():
        parser.error(f"there is no program {', '.join(sorted(unknown))}")
    rows: list[dict[str, Any]] = []
    for name in arguments.programs or PROGRAMS:
        for row in compare_levels(name, arguments.levels, arguments.rounds):
            rows.append(row)
            if not arguments.json:
                limit = f", limit {row['limit']}" if row["limit"] else ""
                print(
                    f"{name:16}{row['level']:12}{row['ratio']:6.2f} x  ({row['low']:.2f} to {row['high']:.2f}{limit})"
                    f"  {row['base_ms']:.1f} -> {row['ms']:.1f} ms",
                    flush=True,
                )
    if arguments.json:
        print(json.dumps({"benchmark": "record_command", "rows": rows}))
    return int(any(row["limit"] is not None and row["ratio"] > row["limit"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
