"""The control: tests that pass on a virtual NPU whose operators do nothing (idle.py) say nothing, and are VACUOUS.

It is done file by file, and of a suite with `together` after a run: so many of its files share a process then, as half
of what a process of MindSpore takes is its start. A row that lacks it says so.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import idle
import status
import suites
from results import Row
from workers import Limits, Worker

# Many tests of ranks stand still there. One that passes does so about as fast as it did.
SECONDS, LEAST = 120, 20
# What the row of a file has whose tests have not been tried there.
NAME, NOT_DONE = "(control)", "SKIP: not run where operators do nothing"


class Control:
    """Runs tests of one file at a time where operators do nothing."""

    def __init__(self, suite: str, folder: Path, memory: int, libraries: Path) -> None:
        row = suites.TABLE[suite]
        self.memory = memory
        self.worker = Worker(
            folder,
            row.get("environment", {}),
            {"VNPU_LIBRARIES": str(libraries)},
            Limits(SECONDS, memory),
            True,
            row.get("bare", False),
            suites.judge_of(suite),
        )

    def mark(self, name: str, found: Row) -> str:
        """Make those VACUOUS that pass there, too; returns what there is to say of the others."""
        passed = [test for test, (verdict, _) in found.items() if verdict == "PASS"]
        if not passed:
            return ""
        limit = min(SECONDS, LEAST + math.ceil(3 * max(found[test][1] for test in passed)))
        self.worker.limits = Limits(limit, self.memory)
        there = self.worker.judge(name, passed)
        for test in passed:
            if test in there and there[test][0] == "PASS":
                found[test] = ("VACUOUS", found[test][1])
        still = sum(verdict.startswith("TIMEOUT: more than") for verdict, _ in there.values())
        return f"; {still} stood still for {limit} s where operators do nothing" if still else ""

    def of_stored(self, rows: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
        """Stored rows with the control done, the files in one process. Rows have only the number of tests that pass:
        all are run. Raises RuntimeError where the tests are not those of a row."""
        there = self.worker.judge(os.pathsep.join(rows))
        result = {}
        for file, row in rows.items():
            count, others = row[status.COUNT], {*row} - {status.COUNT, NAME}
            said = {test.removeprefix(f"{file}::"): v for test, (v, _) in there.items() if test.startswith(f"{file}::")}
            tried = {test: verdict for test, verdict in said.items() if test not in others}
            if len(rows) > 1 and (len(tried) != count or any("not tried" in verdict for verdict in tried.values())):
                result |= self.of_stored({file: row})  # it, or a file before it, could not be imported, or hung
                continue
            if len(tried) != count and "(import)" not in there:
                raise RuntimeError(f"{file}: {count} tests are stored as PASS, and {len(tried)} were run")
            vacuous = sorted(test for test, verdict in tried.items() if verdict == "PASS")
            assert isinstance(count, int)
            result[file] = {
                **{test: verdict for test, verdict in row.items() if test != NAME},
                status.COUNT: count - len(vacuous),
                **dict.fromkeys(vacuous, "VACUOUS"),
            }
        return result


def kept(known: Mapping[str, Mapping[str, object]], found: dict[str, dict[str, str]]) -> None:
    """What a list knows by its control holds of what was found without, but for a test that has come to pass."""
    for file, row in found.items():
        before = known.get(file, {NAME: NOT_DONE})
        passed = [test for test, verdict in row.items() if verdict == "PASS"]
        if NAME in row:
            row |= {test: "VACUOUS" for test in passed if before.get(test) == "VACUOUS"}
            if NAME not in before and all(before.get(test, "VACUOUS") == "VACUOUS" for test in passed):
                del row[NAME]


def run(suite: str, names: Iterable[str], folder: Path, options: argparse.Namespace) -> None:
    """Do the control of the stored rows that lack it, and store it."""
    together = suites.TABLE[suite]["together"]
    known = status.read(suite)
    todo = [name for name in names if NAME in known.get(name, {})]
    # Files of one name in two folders cannot be in one process.
    groups = [
        [*group][i : i + together]
        for _, group in itertools.groupby(sorted(todo), os.path.dirname)
        for group in [[*group]]
        for i in range(0, len(group), together)
    ]
    control = Control(suite, folder, options.memory, idle.build())
    began = time.monotonic()
    try:
        for number, group in enumerate(groups, 1):
            rows = control.of_stored({name: known[name] for name in group})
            status.write(suite, {**status.read(suite), **rows})
            counts = Counter(verdict for row in rows.values() for verdict in row.values() if verdict == "VACUOUS")
            passed = sum(row[status.COUNT] for row in rows.values())
            print(
                f"[{number} of {len(groups)}] {len(group)} files: {passed} PASS, {counts['VACUOUS']} VACUOUS "
                f"({time.monotonic() - began:.0f} s in all)",
                file=sys.stderr,
                flush=True,
            )
    finally:
        control.worker.kill()
        control.worker.close()
