"""Every fault of `inside` and `around`, and what is whole: is the operator, or the class, named?

`python tests/accuracy/run.py [cpu] [isa] [npu]`: on the CPU, on it with another set of instructions, on the virtual NPU.
Writes tests/accuracy/status.json: for each side and fault inside of operators the one that was changed, the one that was
named, its score and that of the next; for each around them the class. The second recording is that of the side, the first
of `cpu`. Exit status 1 where one is missed, or something whole is called wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torchport.compare.classes import find_causes
from torchport.compare.replay import replay_recording
from torchport.record.operators.reading import Operators

HERE = Path(__file__).parent
STATUS = HERE / "status.json"
PROGRAMS = ("text", "image")
SIDES = {"cpu": "cpu", "isa": "cpu", "npu": "npu"}


def names() -> list[str]:
    """Of all faults inside of operators."""
    found: list[str] = _asked("from inside import INSIDE; print(json.dumps([fault.name for fault in INSIDE]))")
    return found


def around() -> dict[str, tuple[str, str]]:
    """By name of a fault around operators, its program and class."""
    rows = _asked("from around import AROUND; print(json.dumps({a.name: (a.program, a.kind) for a in AROUND}))")
    return {name: (program, kind) for name, (program, kind) in rows.items()}


def _asked(code: str) -> Any:
    """What `code` prints as JSON, in a process that may import torch."""
    run = subprocess.run(
        [sys.executable, "-c", f"import json; {code}"],
        cwd=HERE,
        check=True,
        capture_output=True,
        text=True,
        env=_environment("cpu"),
    )
    return json.loads(run.stdout)


def classed(reference: Path, folder: Path, name: str, program: str, wanted: str) -> dict[str, Any]:
    """The class that a comparison names; "" for none."""
    pair = (Operators.read(path / one.replace(" ", "_")) for path, one in ((reference, program), (folder, name)))
    found = find_causes(*pair)
    text = found[0].text.replace(f"{HERE.parents[1]}/", "") if found else ""
    return {"class": wanted, "named": found[0].kind if found else "", "text": text}


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
    start = [sys.executable] if SIDES[side] == "cpu" else [sys.executable, "-m", "torchport", "run", "--as-is"]
    run = subprocess.run([*start, *script], check=True, stdout=subprocess.PIPE, text=True, env=_environment(side))
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line["operator"] for line in lines}


def judge(folder: Path, name: str, changed: str) -> dict[str, Any]:
    """What the replay says of one recording."""
    found = replay_recording(folder / name.replace(" ", "_"), steps=[1] if changed else None)
    rows = sorted(
        (row for row in found.rows if row.kind in ("judged", "view")), key=lambda row: (-row.wrong, -row.score)
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
    faults, others = names(), around()
    with tempfile.TemporaryDirectory() as temporary:
        reference = Path(temporary, "reference")
        record("cpu", reference, list(PROGRAMS))
        for side in sys.argv[1:] or SIDES:
            folder = Path(temporary, side)
            changed = record(side, folder, [*PROGRAMS, *faults, *others])
            rows = {name: judge(folder, name, changed[name]) for name in (*PROGRAMS, *faults)}
            kinds = {name: (name, "") for name in PROGRAMS} | others
            classes = {name: classed(reference, folder, name, *kinds[name]) for name in kinds}
            for name, row in rows.items():
                good = row["named"] == row["changed"] and (name in PROGRAMS or bool(row["changed"]))
                missed += not good
                print(f"{'' if good else 'MISSED '}{side} {name}: {row['named']} {row['score']}, next {row['next']}")
            for name, row in classes.items():
                missed += row["named"] != row["class"]
                print(
                    f"{'' if row['named'] == row['class'] else 'MISSED '}{side} {name}: {row['named']} ({row['text']})"
                )
            status[side] = {"inside": rows, "around": classes}
            STATUS.write_text(json.dumps(status, indent=1) + "\n")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
