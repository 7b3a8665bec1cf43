"""How many faults in the kernels the operator tests notice: `make mutation`, or `python tests/mutation/run.py`.

A mutant is one small change of one kernel of csrc/opapi (changes.py): arguments swapped, alpha dropped, another
reduction. All are in one build (build.py), and one at a time is switched on. First the tests of tests/vnpu/ops run with
none: they have to pass, and tell which mutants each test reaches. Then each mutant's tests run until one fails, crashes
or hangs: it is killed. One that no test reaches lives, as does one whose tests all pass. Those that compute the same as
the original stand in equivalent.toml with the reason, and are not counted.

Fails when less than 97 % are killed. `--update` writes status.json. `--again` goes on with the last run and its build: it
runs those that have no verdict yet, and those that lived: after a test has been added.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import build  # noqa: E402
from mutants import Mutant  # noqa: E402

STATUS, EQUIVALENT, RESULTS = HERE / "status.json", HERE / "equivalent.toml", build.FOLDER / "results.json"
SEED, PER_FILE, COUNT, THRESHOLD = 2026, 2, 150, 0.97
LIVED = ("survived", "not reached")


def equivalent() -> dict[str, str]:
    """Mutants that no test can kill, by key, with the reason."""
    return {row["mutant"]: row["reason"] for row in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["row"]}


def status(seed: int, mutants: dict[int, Mutant], verdicts: dict[int, str]) -> dict[str, object]:
    """What is kept of a run: counts by family and by mutation operator, and who lived."""
    same = equivalent()
    counted = {n: mutant for n, mutant in mutants.items() if not (verdicts[n] in LIVED and mutant.key in same)}

    def table(group: dict[int, str]) -> dict[str, dict[str, int]]:
        rows: dict[str, Counter[str]] = {}
        for number, name in group.items():
            rows.setdefault(name, Counter())[verdicts[number]] += 1
        return {name: dict(sorted(row.items())) for name, row in sorted(rows.items())}

    return {
        "seed": seed,
        "mutants": len(counted),
        "killed": sum(verdicts[number] not in LIVED for number in counted),
        "equivalent": len(mutants) - len(counted),
        "by_operator": table({n: mutant.change.operator for n, mutant in counted.items()}),
        "by_file": table({n: mutant.file for n, mutant in counted.items()}),
        "survivors": {mutant.key: verdicts[n] for n, mutant in counted.items() if verdicts[n] in LIVED},
    }


def show(result: dict[str, object], mutants: dict[int, Mutant], verdicts: dict[int, str]) -> None:
    for heading in ("by_operator", "by_file"):
        rows = result[heading]
        assert isinstance(rows, dict)
        print(f"\n{heading.replace('_', ' '):28} killed     of")
        for name, row in rows.items():
            total = sum(row.values())
            print(f"  {name:26} {total - sum(row.get(lived, 0) for lived in LIVED):6} {total:6}")
    print("\nlived:")
    for number, mutant in sorted(mutants.items()):
        if verdicts[number] in LIVED:
            print(
                f"  {number} {mutant.file}:{mutant.line} {mutant.function} [{mutant.change.operator}] {verdicts[number]}"
            )
            print(f"      {mutant.change.original}\n      {mutant.change.mutated or '(nothing)'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--seed", type=int, default=SEED, help="which mutants are taken (default: %(default)s)")
    option("--per-file", type=int, default=PER_FILE, help="how many of a file (default: %(default)s)")
    option("--count", type=int, default=COUNT, help="how many of all these (default: %(default)s)")
    option("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (default: %(default)s)")
    option("--build-only", action="store_true", help="make the build and stop")
    option("--again", action="store_true", help="go on with the last run, without those it killed")
    option("--update", action="store_true", help="write the result to status.json")
    option("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()

    if options.again:
        mutants = build.built()
    else:
        RESULTS.unlink(missing_ok=True)
        mutants = build.build(options.seed, options.per_file, options.jobs)
    if options.build_only:
        return 0
    os.environ["VNPU_LIBRARIES"] = str(build.LIBRARIES)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import sessions  # loads torch_npu with the mutants' libraries

    verdicts: dict[int, str] = {}
    if options.again and RESULTS.exists():
        verdicts = {int(n): verdict for n, verdict in json.loads(RESULTS.read_text(encoding="utf-8")).items()}
    order = sorted(mutants, key=lambda n: mutants[n].rank(options.seed))[: options.count]
    mutants = {n: mutants[n] for n in order}
    todo = {n: mutant for n, mutant in mutants.items() if n not in verdicts}  # first those without a verdict
    todo |= {n: mutant for n, mutant in mutants.items() if verdicts.get(n) in LIVED}
    for number, verdict in sessions.judge(todo, options.jobs):
        verdicts[number] = verdict
        RESULTS.write_text(json.dumps(verdicts, indent=0), encoding="utf-8")
        print(f"\r{len(verdicts.keys() & mutants.keys())} of {len(mutants)} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    wrongly = [mutant.key for n, mutant in mutants.items() if mutant.key in equivalent() and verdicts[n] not in LIVED]
    if wrongly:
        print("killed, though equivalent.toml says that none can be:", *wrongly, sep="\n  ", file=sys.stderr)
    result = status(options.seed, mutants, verdicts)
    if options.update:
        STATUS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        show(result, mutants, verdicts)
    killed, total = result["killed"], result["mutants"]
    assert isinstance(killed, int) and isinstance(total, int)
    print(
        f"{killed} of {total} mutants killed ({killed / total:.1%}), {result['equivalent']} equivalent", file=sys.stderr
    )
    return 1 if wrongly or killed < THRESHOLD * total else 0


if __name__ == "__main__":
    sys.exit(main())
