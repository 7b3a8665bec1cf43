"""Training programs as users of other libraries write them, in which nothing is wrong: no operator may be named, no
cause, and no invariant of training.

`python tests/accuracy/foreign.py [NAME ...]` records each program of `foreign/` on the CPU and on the virtual NPU at
level tensor, compares the two with `torchport compare`, and stores in `foreign.json` its word, what it named, the
share of the bytes that was judged, and the invariants of training that are said to be broken. `make libraries` installs the libraries. Exit status 1 where something is named.

The word itself may be "does not hold" or "undecided": nothing but a control run tells what rounding does to a curve.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = HERE / "foreign"
STORED = HERE / "foreign.json"
LIBRARIES = HERE.parents[1] / "build/libraries"
JOBS = 2
TORCHPORT = [sys.executable, "-m", "torchport"]


def call(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run torchport in `folder`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(LIBRARIES), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [*TORCHPORT, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def judge(program: Path) -> dict[str, Any]:
    """The word of `torchport compare` on a program; "failed" and why if one of the runs has failed."""
    ranks = ["--nproc", "2"] if "LOCAL_RANK" in program.read_text() else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for device in ("cpu", "npu"):
            own = folder / f"in_{device}"  # so that the libraries are none of the program's project
            own.mkdir()
            shutil.copy(program, own)
            record = ["run", "-q", "--record", str(folder / device), "--on", device, "--level", "tensor"]
            run = call([*record, *(["--invariants"] * (device == "npu")), *ranks, program.name], own)
            if run.returncode and not (run.returncode == 1 and "TP368" in run.stderr):
                return {"failed": f"on {device}: {run.stderr[-400:]}"}
        watched = call(["record", "invariants", str(folder / "npu"), "--json"], folder)
        compared = call(["compare", str(folder / "cpu"), str(folder / "npu"), "--json"], folder)
        if not compared.stdout.startswith("{"):
            return {"failed": f"compare: {compared.stderr[-400:]}"}
    broken = [finding["message"] for finding in json.loads(watched.stdout)["findings"]]
    return {**summarize(json.loads(compared.stdout)["data"]), "broken": broken}


def summarize(data: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a comparison that is kept."""
    found = data["culprit"]
    first = found["first"] or {}
    return {
        "word": data["verdict"],
        "class": found["class"],
        "operator": first.get("operator", ""),
        "causes": [cause["text"] for cause in found["causes"]],
        "share": round(found["share"], 4),
        "not judged": [f"{one['operator']}: {one['why']}" for one in found["unjudged"][:3]],
    }


def main() -> int:
    """Judge the programs that are named, or all."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    programs = [path for path in sorted(PROGRAMS.glob("*.py")) if not sys.argv[1:] or path.stem in sys.argv[1:]]
    bad = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for path, row in zip(programs, pool.map(judge, programs), strict=True):
            good = "failed" not in row and not row["class"] and not row["operator"] and not row["broken"]
            bad += not good
            print(f"{'' if good else 'NAMED '}{path.stem}: {json.dumps(row)}", flush=True)
            stored[path.stem] = row
            STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
