"""Every fault of `inside`, and what is whole, on a device: does the replay name the operator that is wrong first?

`python tests/accuracy/run.py [cpu] [isa] [npu]`: on the CPU, on it with another set of instructions, on the virtual NPU.
Writes tests/accuracy/status.json: for each side and fault the operator that was changed, the one that was named, its score
and that of the next. Exit status 1 where one is missed, or something whole is called wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torchport.compare.replay import replay

HERE = Path(__file__).parent
STATUS = HERE / "status.json"
PROGRAMS = ("text", "image")
SIDES = {"cpu": "cpu", "isa": "cpu", "npu": "npu"}


def names() -> list[str]:
    """Of all faults, asked where torch may be imported."""
    code = "import json; from inside import INSIDE; print(json.dumps([fault.name for fault in INSIDE]))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HERE,
        check=True,
        capture_output=True,
        text=True,
        env=_environment("cpu"),
    )
    found: list[str] = json.loads(run.stdout)
    return found


def _environment(side: str) -> dict[str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if SIDES[side] == "cpu":
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if side == "isa":
        environment["ATEN_CPU_CAPABILITY"] = "default"
    return environment


def record(side: str, folder: Path, wanted: list[str]) -> dict[str, str]:
    """Record all of them; by name the operator that was changed."""
    script = [str(HERE / "recording_run.py"), str(folder), SIDES[side], *wanted]
    start = (
        [sys.executable] if SIDES[side] == "cpu" else [sys.executable, "-m", "torchport", "run", "--as-is"]
    )
    run = subprocess.run(
        [*start, *script], check=True, stdout=subprocess.PIPE, text=True, env=_environment(side)
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line["operator"] for line in lines}


def judge(folder: Path, name: str, changed: str) -> dict[str, Any]:
    """What the replay says of one recording."""
    found = replay(folder / name.replace(" ", "_"), steps=[1] if changed else None)
    rows = sorted(
        (row for row in found.rows if row.kind in ("judged", "view")),
        key=lambda row: (-row.wrong, -row.score),
    )
    first = found.first
    return {
        "changed": changed,
        "named": first.operator if first else "",
        "module": first.module if first else "",
        "score": float(f"{first.score:.3g}") if first else None,
        "rank": rows.index(first) + 1 if first else None,
        "next": float(f"{rows[1 if first else 0].score:.3g}"),
        "wrong": len(found.wrong),
        "share": round(found.share, 4),
        "calls": len(found.rows),
        "not judged": [list(one) for one in found.unjudged],
    }


def main() -> int:
    """Try the sides that are named, or all."""
    status = json.loads(STATUS.read_text()) if STATUS.exists() else {}
    missed = 0
    faults = names()
    for side in sys.argv[1:] or SIDES:
        with tempfile.TemporaryDirectory() as temporary:
            changed = record(side, Path(temporary), [*PROGRAMS, *faults])
            rows = {name: judge(Path(temporary), name, operator) for name, operator in changed.items()}
        for name, row in rows.items():
            good = row["named"] == row["changed"] and (name in PROGRAMS or row["changed"])
            missed += not good
            print(
                f"{'' if good else 'MISSED '}{side} {name}: {row['named'] or 'nothing'} {row['score']}, next {row['next']}"
            )
        status[side] = rows
        STATUS.write_text(json.dumps(status, indent=1) + "\n")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
