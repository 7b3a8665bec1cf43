"""torch_npu's own tests, op-plugin's and MindSpore's on the virtual NPU: `make upstream`, or `python tests/upstream/run.py [FILE...]`.

Runs each file of the suites in suites.toml in a process of its own (judge.py), compares with the lists in status/ and
fails when a test has left PASS or has come to crash or hang. `--update` writes the lists. The tests are not ours and not
in this repository: they are fetched into build/upstream, or taken from UPSTREAM=FOLDER.

    PASS         the test passes, and fails on a virtual NPU whose operators do nothing (idle.py)
    VACUOUS      it passes there, too: it says nothing about operators, and is not counted. Most such tests look for an
                 error, or at what is not computed: streams, memory, the profiler's files
    FAIL         with the cause that causes.toml gives, or with what was said
    GAP          the virtual NPU says that it lacks an operator
    NOT_OFFERED  the chip takes no such dtype or layout, or torch_npu's wheel does not have what is tested
    IMPOSSIBLE   cannot be run here, for the reason in causes.toml: a library that is not ours, more memory
    SKIP         the test skips itself
    CRASH, TIMEOUT  as it is seen from outside

What is found is kept in build/upstream/results file by file. `--resume` goes on where a run was broken off, and with what
took too long in it, so that on a busy machine a first run may have a short limit (`--seconds 60`). `--junit FILE` writes
it as JUnit's XML. `--report` runs nothing and says what has been found, `--causes` with the tests of each cause.
A list has the files that were run; a suite's row in suites.toml says in which order they are. What is VACUOUS of
MindSpore's is found by `--control`, after `--update`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]

import causes  # noqa: E402
import control  # noqa: E402
import idle  # noqa: E402
import suites  # noqa: E402
from control import Control  # noqa: E402
from results import Results, write_junit  # noqa: E402
from status import compared, read, write  # noqa: E402
from verdicts import changes, counted, status_of  # noqa: E402
from workers import Limits, Worker  # noqa: E402

SECONDS = 600  # for one test


def run(suite: str, names: list[str], folder: Path, options: argparse.Namespace, results: Results) -> None:
    """Judge the files that `results` lacks."""
    todo = results.todo(names)
    if not todo:
        return
    row = suites.TABLE[suite]
    later = "together" in row
    libraries = Path() if later else idle.build()
    environment, bare = row.get("environment", {}), row.get("bare", False)
    began, done = time.monotonic(), len(names) - len(todo)
    workers: list[Worker] = []

    def judge(share: list[str]) -> None:
        limits = Limits(options.seconds, options.memory)
        real = Worker(folder, environment, {}, limits, False, bare, suites.judge_of(suite))
        empty = Control(suite, folder, options.memory, libraries)
        workers.extend((real, empty.worker))
        try:
            while share:
                name = share.pop(0)
                start = time.monotonic()
                found = real.judge(name, results.late(name))
                stood = "" if later else empty.mark(name, found)
                if later and any(verdict == "PASS" for verdict, _ in found.values()):
                    found[control.NAME] = (control.NOT_DONE, 0.0)
                results.add(name, found)
                counts = Counter(status_of(verdict) for verdict, _ in found.values())
                print(
                    f"[{sum(one in results for one in names)} of {len(names)}] {name}: {counted(counts)} "
                    f"({time.monotonic() - start:.0f} s, {time.monotonic() - began:.0f} s in all{stood})",
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            real.close()
            empty.worker.close()

    if done:
        print(f"{suite}: {done} of {len(names)} files were done before", file=sys.stderr)
    with ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(judge, todo) for _ in range(options.jobs)]
        try:
            for one in running:
                one.result()
        except BaseException:  # what is under way is lost, what is done is kept
            todo.clear()
            for worker in workers:
                worker.kill()
            raise


def stored(suite: str, present: list[str]) -> None:
    rows = [row for name, row in read(suite).items() if name in present]
    counts = Counter({"PASS": sum(int(row["PASS"]) for row in rows)})
    for row in rows:
        counts.update(status_of(verdict) for test, verdict in row.items() if test != "PASS")
    print(f"{suite}: the list has {len(rows)} of {len(present)} files: {counted(counts)}")


def report(suite: str, verdicts: dict[str, dict[str, str]], present: int, listing: bool) -> None:
    counts = Counter(status_of(verdict) for row in verdicts.values() for verdict in row.values())
    meant = sum(counts[status] for status in ("PASS", "FAIL", "GAP", "CRASH", "TIMEOUT"))
    print(f"{suite}: {len(verdicts)} of {present} files: {counted(counts)}")
    print(f"  {counts['PASS']} of {meant} tests that mean something pass ({counts['PASS'] / max(meant, 1):.1%})")
    if listing:
        causes.show(verdicts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="some files, or their names without folder (default: all)")
    parser.add_argument("--suite", action="append", choices=suites.SUITES, help="default: all")
    parser.add_argument("--upstream", type=Path, help="folder with op-plugin/test and pytorch/test")
    parser.add_argument("--jobs", type=int, default=1, help="files at a time")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="limit of one test")
    parser.add_argument("--memory", type=int, default=8, help="limit of one file's processes together, in GiB")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run has found, but for time-outs")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--causes", action="store_true", help="list the tests that do not pass by cause")
    parser.add_argument(
        "--control", action="store_true", help="only mark what is VACUOUS in MindSpore's lists, after --update"
    )
    parser.add_argument("--update", action="store_true", help="write what was found to status/")
    parser.add_argument("--junit", type=Path, help="file for JUnit's XML")
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: end what was started

    regressions, every = 0, {}
    for suite in options.suite or suites.SUITES:
        if (missing := suites.judge_of(suite)[:1]) and not missing[0].exists():
            print(f"{suite}: {missing[0]} does not exist, `make mindspore` makes it. Left out.", file=sys.stderr)
            continue
        folder = suites.tests(suites.TABLE[suite]["source"], options.upstream)
        present = suites.files(suite, folder)
        names = [name for name in present if not options.files or {name, Path(name).name} & {*options.files}]
        if options.control and "together" in suites.TABLE[suite]:
            control.run(suite, names, folder, options)
        if options.control:
            continue
        results = Results(suite, keep=bool(options.resume or options.report or options.files))
        if options.files and not (options.resume or options.report):
            results.forget(names)
        if not options.report:
            run(suite, names, folder, options, results)
        without = causes.given_up(folder, suites.source(suite).get("given_up"))
        found = {name: causes.settled(name, results.verdicts(name), without) for name in names if name in results}
        if options.report:
            stored(suite, present)
        every |= {name: results.rows(name) for name in found}
        if not found:
            continue
        known = read(suite)
        control.kept(known, found)
        regressions += changes(compared(known, found))
        if options.update:
            write(suite, {name: row for name, row in {**known, **found}.items() if name in present})
        report(suite, found, len(present), options.causes)
    if options.junit:
        write_junit(options.junit, every)
    return 1 if regressions and not options.update else 0


if __name__ == "__main__":
    sys.exit(main())
