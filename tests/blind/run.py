"""How well `torchport convert` does on code that it was not made for: `make blind`, or `python tests/blind/run.py`.

Converts each case of cases/ (casefile.py explains them), compares with the expectations, which were written before the
first run, and prints a table by category. first_run.json keeps what that run gave; status.json what is so now.

Fails where a line is worse than stored, and where a bar is not kept: 97 % of the lines right, no silent miss, no wrong
edit, at most 5 false findings, no crash. With --runs the cases that can run do so as well (runnable.py), on the virtual
NPU: converted, and as they are under `torchport run`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from casefile import Case, load
from scoring import Verdict, Word, judge_case, markdown, table

HERE = Path(__file__).parent
STATUS = HERE / "status.json"
RIGHT, FALSE = 0.97, 5  # the share of right lines at least, false findings at most
WAYS = {"converted": 0.95, "redirected": 1.0}  # in which a case runs, and the share of cases that have to


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--cases", nargs="+", metavar="NAME", help="some cases, or categories")
    option("--runs", action="store_true", help="run those that can, too")
    option("--json", action="store_true", help="print all verdicts that are not right, as JSON")
    option("--markdown", action="store_true", help="print the table only")
    option("--update", action="store_true", help="store what was found")
    option("--store", type=Path, default=STATUS, help="where (default: status.json beside this file)")
    option("--keep", type=Path, metavar="FOLDER", help="leave the projects and their conversions here")
    options = parser.parse_args()
    cases = [
        case for case in load() if not options.cases or case.name in options.cases or case.category in options.cases
    ]
    if not cases:
        parser.error("no case is called so")
    verdicts: list[Verdict] = []
    runs: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        work = options.keep or Path(temporary)
        for case in cases:
            (work / case.name).mkdir(parents=True)
            verdicts += judge_case(case, work / case.name)
        if options.runs:
            import runnable  # which loads torch

            runs = runnable.outcomes([case for case in cases if case.runs], work)
    found = summary(verdicts, runs, cases)
    stored = json.loads(options.store.read_text()) if options.store.exists() else {}
    if options.update:
        found = {**{way: stored[way] for way in WAYS if way in stored}, **found}  # what was not run keeps its figures
        options.store.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        print(markdown(found["table"]))
        if not options.markdown:
            print(*lines(found), sep="\n")
    became_worse = [] if options.update or options.cases else list(worse(stored, found))
    bars = list(failed_bars(found))
    for heading, rows in (("became worse:", became_worse), ("bars that are not kept:", bars)):
        if rows:
            print(heading, *rows, sep="\n  ", file=sys.stderr)
    return 1 if became_worse or bars else 0


def summary(verdicts: list[Verdict], runs: Mapping[str, Mapping[str, str]], cases: Sequence[Case]) -> dict[str, Any]:
    """The table, every verdict that is not right, and the cases that did not run, as JSON values."""
    found: dict[str, Any] = {
        "cases": len(cases),
        "corrected": sum(len(case.corrected) for case in cases),
        "table": table(verdicts),
        "not_right": [dataclasses.asdict(one) for one in verdicts if one.word is not Word.RIGHT],
    }
    for way, outcomes in runs.items():
        failed = {name: said for name, said in outcomes.items() if said}
        found[way] = {"cases": len(outcomes), "ran": len(outcomes) - len(failed), "failed": failed}
    return found


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What is not right, one line of text each, and how many expectations were changed after the first run."""
    if found["corrected"]:
        yield f"{found['corrected']} expectations were corrected, each with its reason in its case"
    for one in found["not_right"]:
        became = f"  ->  {one['got'].strip()}" if one["got"] else ""
        codes = f"  [{' '.join(one['said'])}]" if one["said"] else ""
        where = f"{one['category']}/{one['case']}/{one['path']}:{one['line']}"
        yield f"{one['word']:14} {where}  {one['text'].strip()}{became}{codes}"
    for way in WAYS:
        if way in found:
            yield f"{way}: {found[way]['ran']} of {found[way]['cases']} ran"
            for name, said in found[way]["failed"].items():
                yield f"    {name}: {said}"


def failed_bars(found: Mapping[str, Any]) -> Iterator[str]:
    """The bars that a run does not keep, in words."""
    row = found["table"]["all"]
    total = sum(row.values())
    if row[Word.RIGHT] < RIGHT * total:
        yield f"{row[Word.RIGHT]} of {total} lines are right: {row[Word.RIGHT] / total:.1%}"
    for word, most in ((Word.SILENT, 0), (Word.WRONG, 0), (Word.FALSE, FALSE), (Word.CRASH, 0)):
        if row[word] > most:
            yield f"{word.value}: {row[word]}, at most {most}"
    for way, share in WAYS.items():
        if way in found and found[way]["ran"] < share * found[way]["cases"]:
            yield f"{way}: {found[way]['ran']} of {found[way]['cases']} ran"


def worse(stored: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """The lines that are not right and were, or were of a better word, in the stored run; the cases that ran there."""
    order = [Word.RIGHT, Word.REPORTED, Word.FALSE, Word.SILENT, Word.WRONG, Word.CRASH]
    before = {_place(one): one["word"] for one in stored.get("not_right", [])} if stored else None
    for one in found["not_right"] if before is not None else ():
        was = before.get(_place(one), Word.RIGHT.value)
        if order.index(Word(one["word"])) > order.index(Word(was)):
            yield f"{one['case']}/{one['path']}:{one['line']}: {was} -> {one['word']}"
    for way in WAYS:
        if way in stored and way in found:
            for name in found[way]["failed"].keys() - stored[way]["failed"].keys():
                yield f"{name}: ran {way}, and does not now"


def _place(one: Mapping[str, Any]) -> tuple[str, ...]:
    return one["case"], one["path"], str(one["line"]), one["text"]


if __name__ == "__main__":
    sys.exit(main())
