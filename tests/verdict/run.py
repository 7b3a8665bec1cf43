"""Whether `torchport port` tells a wrong port from a right one: `make verdict`, or `python tests/verdict/run.py`.

Ports 45 healthy training scripts, then each again with one fault put into the converted script (cells.toml: the step
deleted, a learning rate 10 % too high, the wrong weights saved ...), and compares the words with status.json.

Fails on any word that has become worse, and unless: no sabotaged port "holds"; at most 2 % of them are undecided; each
healthy port "holds"; there are 300 sabotaged ports, and each sabotage changes what its port computes or leaves. The
bars hold for the whole table: what is not run now counts as it is stored. With --reordered the device adds in another
order than the CPU, as every real one does: all healthy ports, and ten that are sabotaged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from matrix import (
    COLUMNS,
    HEALTHY,
    REORDERED,
    STATUS,
    Row,
    TableError,
    failed_bars,
    load,
    markdown,
    merged,
    read,
    summary,
    worse,
    write,
)
from ports import Ports


def main() -> int:
    edits, _ = load()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--scripts", nargs="+", choices=sorted(edits), default=sorted(edits), metavar="NAME", help="some scripts")
    option("--columns", nargs="*", choices=COLUMNS, default=COLUMNS, metavar="NAME", help="some faults; none: healthy")
    option("--jobs", type=int, default=2, help="ports at a time, of one thread each (default: %(default)s)")
    option("--missing", action="store_true", help="only what the stored table has no word on, such as after a stop")
    option("--update", action="store_true", help="store what was found")
    option("--table", type=Path, default=STATUS, help="the stored table (default: status.json beside this file)")
    option("--reordered", action="store_true", help="on a device that adds in another order; the table: reordered.json")
    option("--work", type=Path, help="keep the healthy ports in this folder (default: a temporary one)")
    option("--markdown", action="store_true", help="print the stored table, and run nothing")
    options = parser.parse_args()
    if options.reordered:
        options.table = options.table.with_name("reordered.json")
        edits = {name: {column: edits[name][column] for column in REORDERED.get(name, ())} for name in edits}
    stored = read(options.table)
    if options.markdown:
        print(markdown(stored))
        return 0

    cells = {name: [column for column in edits[name] if column in options.columns] for name in options.scripts}
    if options.missing:
        known = {name: set(stored.get(name, {})) for name in cells}
        cells = {name: [column for column in columns if column not in known[name]] for name, columns in cells.items()}
        cells = {name: columns for name, columns in cells.items() if columns or HEALTHY not in known[name]}
    total = sum(1 + len(columns) for columns in cells.values())
    found: dict[str, dict[str, Row]] = {}
    errors: list[str] = []
    start = time.monotonic()
    with nullcontext(options.work) if options.work else tempfile.TemporaryDirectory() as work:
        ports = Ports(Path(work), options.jobs, ["--reordered"] if options.reordered else [])
        for number, (script, column, row) in enumerate(ports.rows(cells), 1):
            if isinstance(row, TableError):
                errors.append(str(row))
                print(f"{number:3} of {total} {row}", flush=True)
                continue
            found.setdefault(script, {})[column] = row
            noticed = row.noticed or row.code
            print(f"{number:3} of {total} {script:16} {column:22} {row.word:14} {noticed:24} {row.acts}", flush=True)
            if options.update:  # after each: a run that is stopped keeps what it has found
                write(merged(stored, found, edits), options.table)
    table = merged(stored, found, edits)
    became_worse, bars = list(worse(stored, found)), list(failed_bars(table, edits, least=not options.reordered))
    print(f"\n{summary(table)}\n{total} ports in {time.monotonic() - start:.0f} s")
    for heading, lines in (
        ("wrong rows of cells.toml:", errors),
        ("became worse:", became_worse),
        ("bars that are not kept:", bars),
    ):
        if lines:
            print(heading, *lines, sep="\n  ")
    return 1 if errors or bars or (became_worse and not options.update) else 0


if __name__ == "__main__":
    sys.exit(main())
