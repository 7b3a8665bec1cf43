"""Run the tests of one of MindSpore's files on the virtual NPU and judge each; run.py starts this once, in MindSpore's
environment, and it starts pytest for each file: MindSpore has threads from its import on, so no process is forked.

It is asked and answers as judge.py does. Where operators do nothing it takes several files for one process (joined by
os.pathsep), and a test's name has its file's before it. Loaded by pytest (`-p mindspore_judge`), it says what pytest finds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
from verdicts import chip_limit, own_words, refused

ANSWERS, WANTED, IDLE = "UPSTREAM_ANSWERS", "UPSTREAM_TESTS", "UPSTREAM_IDLE"
REASON = 300  # characters
FEW = 4  # cores
# The authors' marks: for this chip, and for one NPU. Tests of several are started by others with msrun.
CHIP, ONE = {"platform_ascend", "platform_ascend910b"}, "onecard"
# Variants that ask for CANN's graph compiler.
COMPILED = re.compile(r"\[.*(?<![a-z])(ge|o2)(?![a-z])", re.IGNORECASE)


def say(**what: Any) -> None:
    os.write(int(os.environ[ANSWERS]), json.dumps(what).encode() + b"\n")


def classify(text: str) -> tuple[str, str]:
    """Status and reason of a failure, from what it has raised and written."""
    flat = " ".join(text.split())
    if limit := chip_limit(flat):
        return "NOT_OFFERED", limit
    if said := refused(flat):
        return said
    if words := own_words(flat):
        return "FAIL", words[:REASON]
    raised = re.findall(r"^E +((?:\w+\.)*\w*(?:Error|Exception|Failed).*)$", text, re.MULTILINE)
    kept = re.sub(r"0x[0-9a-f]{6,}", "0x...", re.sub(r"/tmp/\S+", "/tmp/...", " ".join((raised or [""])[0].split())))
    return "FAIL", kept[:REASON] or "failed"


def name_of(nodeid: str) -> str:
    return nodeid if os.environ.get(IDLE) else nodeid.partition("::")[2]


def pytest_sessionstart(session: Any) -> None:
    """MindSpore has a thread for each core but one, and where it has only one refuses graphs with branches ("Can not build
    a sub graph which contains ConditionSwitch"). Machines with NPUs have many."""
    if (os.cpu_count() or 1) <= FEW and importlib.util.find_spec("mindspore"):
        importlib.import_module("mindspore").runtime.dispatch_threads_num(2)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    wanted = json.loads(os.environ[WANTED])
    there = [
        item for item in items if CHIP & {mark.name for mark in item.iter_markers()} and item.get_closest_marker(ONE)
    ]
    say(tests=[name_of(item.nodeid) for item in there])
    chosen = [item for item in there if wanted is None or name_of(item.nodeid) in wanted]
    for item in chosen:
        if COMPILED.search(name_of(item.nodeid)):
            reason = "asks for CANN's graph compiler (GE)"
            say(test=name_of(item.nodeid), status="IMPOSSIBLE", reason=reason, seconds=0)
    items[:] = [item for item in chosen if not COMPILED.search(name_of(item.nodeid))]


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        status, reason = classify(str(report.longrepr))
        say(test="(import)", status=status, reason=reason, seconds=0)
        say(tests=[])


def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    say(test=name_of(nodeid))


class Verdicts:
    """Of the test that runs: the worst of its setup, call and end."""

    status, reason, seconds = "PASS", "", 0.0


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "setup":
        Verdicts.status, Verdicts.reason, Verdicts.seconds = "PASS", "", 0.0
    Verdicts.seconds += report.duration
    if report.skipped:
        words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        Verdicts.status, Verdicts.reason = "SKIP", " ".join(words.split())[:REASON]
    elif report.failed and Verdicts.status == "PASS":
        Verdicts.status, Verdicts.reason = classify(f"{report.longrepr}\n{report.capstderr}")


def pytest_runtest_logfinish(nodeid: str, location: Any) -> None:
    seconds = round(Verdicts.seconds, 2)
    say(test=name_of(nodeid), status=Verdicts.status, reason=Verdicts.reason, seconds=seconds)


def pytest_sessionfinish(session: Any) -> None:
    say(done=True)


def main() -> None:
    from torchport.vnpu import mindspore

    answers = os.dup(1)
    os.dup2(2, 1)
    bare = {**os.environ, "PYTHONPATH": ""}  # what torch_npu's tests need is built for its numpy
    ours = {**bare, **mindspore.environment(bare), ANSWERS: str(answers)}
    for line in sys.stdin:
        job = json.loads(line)
        folder = Path(job["folder"])
        path = os.pathsep.join([str(folder.parent), str(Path(__file__).parent), ours["PYTHONPATH"]])
        variables = {**ours, **job["environment"], WANTED: json.dumps(job["tests"]), "PYTHONPATH": path}
        variables[IDLE] = "1" if job["idle"] else ""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mindspore_judge", "-p", "no:cacheprovider"]
        command += ["--rootdir", str(folder), "-c", os.devnull, "--continue-on-collection-errors"]
        command += [str(folder / file) for file in job["file"].split(os.pathsep)]
        # Tests write files where they are started.
        place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with open(job["log"], "w", encoding="utf-8") as log, place as here:
            child = subprocess.Popen(
                command,
                env=variables,
                cwd=here,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[answers],
                start_new_session=True,
            )
            os.write(answers, json.dumps({"process": child.pid}).encode() + b"\n")
            code = child.wait()
        # pytest's own: tests have failed, none was there, a file could not be imported.
        ended = {"exit": 0 if code in (0, 1, 2, 5) else code}
        os.write(answers, json.dumps(ended).encode() + b"\n")


if __name__ == "__main__":
    main()
