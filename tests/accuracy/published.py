"""Errors of training that others have published, in small programs: how many are named, and that no healthy twin is.

`python tests/accuracy/published.py [NAME ...]` runs each program of `published.toml` as it is and with `--fault`. Programs
of `alone` run under `torchport run --invariants`; programs of `ranks` are recorded on one device and on two ranks, and
compared. `published.json` keeps what was said. Exit status 1 where a healthy program is accused, or one that has to be
named is not, within one step of its effect.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from foreign import JOBS, call

HERE = Path(__file__).parent
TABLE = HERE / "published.toml"
STORED = HERE / "published.json"
PROGRAMS = HERE / "published"


def judge(row: Mapping[str, Any]) -> dict[str, Any]:
    """The words on the healthy program and on the faulty one: a list of [step, text] each."""
    program = PROGRAMS / row["program"]
    say = compare_ranks if "parallel" in row else watch
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(program, temporary)
        healthy = say(Path(temporary), program.name, row["ranks"], [])
        faulty = say(Path(temporary), program.name, row["ranks"], ["--fault"])
    wanted = [step for step, text in faulty if text.startswith(row.get("says", ""))]
    named = bool(wanted) and abs(wanted[0] - row["effect_step"]) <= 1
    return {"healthy": healthy, "faulty": faulty[:2], "effect": row["effect_step"], "named": named}


def watch(folder: Path, program: str, ranks: int, words: list[str]) -> list[list[Any]]:
    """The invariants that a run breaks."""
    several = ["--nproc", str(ranks)] if ranks > 1 else []
    record = ["run", "-q", "--invariants", "--force", "--record", "recorded", "--level", "none"]
    run = call([*record, *several, program, *words], folder)
    listed = call(["record", "invariants", "recorded", "--json"], folder)
    if not listed.stdout.startswith("{") or (run.returncode and listed.returncode != 1):
        return [[-1, f"failed: {run.stderr[-300:]} {listed.stderr[-300:]}"]]
    return [
        [finding["evidence"].get("step", -1), finding["message"]] for finding in json.loads(listed.stdout)["findings"]
    ]


def compare_ranks(folder: Path, program: str, ranks: int, words: list[str]) -> list[list[Any]]:
    """The findings against several ranks, beside one device."""
    for name, number in (("one", 1), ("many", ranks)):
        if name == "one" and (folder / name).exists():
            continue
        record = ["run", "-q", "--force", "--record", name, "--level", "none", "--nproc", str(number), program]
        run = call([*record, *(words if number > 1 else ())], folder)
        if run.returncode:
            return [[-1, f"failed: {run.stderr[-300:]}"]]
    compared = call(["compare", "one", "many", "--json"], folder)
    if not compared.stdout.startswith("{"):
        return [[-1, f"failed: {compared.stderr[-300:]}"]]
    result = json.loads(compared.stdout)
    if result["data"]["verdict"] == "holds":
        return []
    return [
        [finding["evidence"].get("step", -1), finding["message"]]
        for finding in result["findings"]
        if finding["severity"] == "error"
    ] or [[-1, f"{result['data']['verdict']}: {result['data']['reason']}"]]


def main() -> int:
    """Judge the programs that are named, or all."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    faults = tomllib.loads(TABLE.read_text())["fault"]
    rows = [row for row in faults if not sys.argv[1:] or row["name"] in sys.argv[1:]]
    bad = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for row, found in zip(rows, pool.map(judge, rows), strict=True):
            accused, missed = bool(found["healthy"]), not found["named"] and "missed" not in row
            bad += accused or missed
            print(f"{'ACCUSED ' * accused}{'MISSED ' * missed}{row['name']}: {json.dumps(found)}", flush=True)
            stored[row["name"]] = found
            STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    named = sum(stored.get(row["name"], {}).get("named", False) for row in faults)
    print(f"{named} of {len(faults)} named within one step of their effect")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
