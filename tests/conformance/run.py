"""Conformance to PyTorch's own operator database: `make conformance`, or `python tests/conformance/run.py [NAME...]`.

Runs every operator of `op_db` in six dtypes on the virtual NPU, and with what it should refuse ("refusals"; judge.py and
late.py say how one is judged), prints what differs from status.json and fails when a pair has left PASS or has entered
CRASH or TIMEOUT. `--update` writes the file.

One process at a time works on a group of operators. It is ended when one pair takes too long or when the process and
its child grow too large; resident memory is what is limited, since the device's address range is reserved as a whole.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from verdicts import changes, counted, status_of, verdict_of
from watched import EndedError, end, group_resident, said

HERE = Path(__file__).parent
STATUS = HERE / "status.json"
GROUP = 150  # pairs a process
SECONDS = 60  # for one pair
STARTING = 300  # seconds until the first: imports, beside whatever else the machine does
RESIDENT_KIB = 6 << 20

Pair = tuple[str, str]
Verdicts = dict[Pair, str]  # "PASS", or "STATUS: reason"


def run_group(group: list[Pair], verdicts: Verdicts) -> list[Pair]:
    """Judge a group in one process; returns the pairs that it did not reach."""
    with subprocess.Popen(
        [sys.executable, HERE / "judge.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(group).encode())
        process.stdin.close()
        current: Pair | None = None
        ended = ""
        try:
            for line in said(
                process.stdout,
                lambda: SECONDS if current else STARTING,
                lambda: group_resident(process.pid),
                RESIDENT_KIB,
            ):
                current = (line["op"], line["dtype"])
                if "status" in line:
                    verdicts[current] = verdict_of(line["status"], line["reason"])
                    current = None
        except EndedError as error:
            ended = str(error)
            end(process.pid)
        except BaseException:  # Ctrl-C, which a session of its own does not get
            end(process.pid)
            raise
        code = process.wait()
    if current is not None:
        verdicts[current] = ended or f"CRASH: exit status {code}"
    elif ended or (code != 0 and not any(pair in verdicts for pair in group)):
        raise SystemExit(f"judge.py did not come to its first operator (exit status {code}); run it by hand")
    return [pair for pair in group if pair not in verdicts]


def read() -> Verdicts:
    if not STATUS.exists():
        return {}
    rows = json.loads(STATUS.read_text(encoding="utf-8"))
    return {(op, dtype): verdict for op, row in rows.items() for dtype, verdict in row.items()}


def write(verdicts: Verdicts) -> None:
    rows: dict[str, dict[str, str]] = {}
    for (op, dtype), verdict in sorted(verdicts.items()):
        rows.setdefault(op, {})[dtype] = verdict
    lines = ",\n".join(f"{json.dumps(op)}: {json.dumps(row)}" for op, row in rows.items())
    STATUS.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operators of op_db, dtypes, or refusals (default: all)")
    parser.add_argument("--part", metavar="I/N", default="1/1", help="the I-th of N equal parts of them (from 1)")
    parser.add_argument("--update", action="store_true", help="write what was found to status.json")
    options = parser.parse_args()
    part, _, parts = options.part.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        parser.error(f"--part {options.part}: expected two numbers I/N with 1 <= I <= N, such as 2/6")
    listed = subprocess.run([sys.executable, HERE / "judge.py", "--list"], capture_output=True, text=True, check=True)
    everything = [(op, dtype) for op, dtype in json.loads(listed.stdout.splitlines()[-1])]
    todo = [pair for pair in everything if not options.names or {*pair} & {*options.names}]
    todo = todo[int(part) - 1 :: int(parts)]
    verdicts: Verdicts = {}
    while todo:
        todo = run_group(todo[:GROUP], verdicts) + todo[GROUP:]
        print(f"\r{len(verdicts)} judged, {len(todo)} to go ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    known = read()
    regressions = changes(
        (f"{pair[0]} {pair[1]}", known.get(pair, "NEW"), verdict) for pair, verdict in sorted(verdicts.items())
    )
    if options.update:
        write({pair: text for pair, text in {**known, **verdicts}.items() if pair in set(everything)})
    counts = Counter(status_of(verdict) for verdict in verdicts.values())
    offered = sum(counts.values()) - counts["NOT_OFFERED"]
    print(counted(counts))
    print(f"{counts['PASS']} of {offered} offered pairs pass ({counts['PASS'] / max(offered, 1):.1%})")
    return 1 if regressions and not options.update else 0


if __name__ == "__main__":
    sys.exit(main())
