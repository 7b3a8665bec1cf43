"""What a run has found so far, one line a file in build/upstream/results, so that a run can be broken off."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).parents[2] / "build/upstream/results"

Row = dict[str, tuple[str, float]]  # verdict and seconds of each test


class Results:
    """The results of one suite. `add` may be called from several threads."""

    def __init__(self, suite: str, keep: bool) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._path, self._lock, self._rows = FOLDER / f"{suite}.jsonl", threading.Lock(), dict[str, Row]()
        if keep and self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                said = json.loads(line)
                self._rows[said["file"]] = {test: (v, s) for test, (v, s) in said["tests"].items()}
        elif not keep:
            self._path.write_text("", encoding="utf-8")
        self._late = {file: late for file, row in self._rows.items() if (late := _late(row))}

    def todo(self, files: list[str]) -> list[str]:
        """Those that have not been run, then those that had too little time."""
        return [file for file in files if file not in self._rows] + [f for f in files if f in self._late]

    def late(self, file: str) -> list[str] | None:
        """The tests that had too little time in an earlier run; None where all have to be run."""
        late = self._late.get(file)
        return None if late is None or any(test.startswith("(") for test in late) else late

    def add(self, file: str, row: Row) -> None:
        """With `late(file)`, these are added to what is known."""
        with self._lock:
            row = {**self._rows[file], **row} if self.late(file) else row
            self._rows[file] = row
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"file": file, "tests": row}) + "\n")

    def forget(self, files: list[str]) -> None:
        for file in files:
            self._rows.pop(file, None)
            self._late.pop(file, None)

    def rows(self, file: str) -> Row:
        return self._rows[file]

    def verdicts(self, file: str) -> dict[str, str]:
        return {test: verdict for test, (verdict, _) in self._rows[file].items()}

    def __contains__(self, file: str) -> bool:
        return file in self._rows


def _late(row: Row) -> list[str]:
    return [test for test, (verdict, _) in row.items() if verdict.startswith("TIMEOUT")]


def write_junit(path: Path, files: dict[str, Row]) -> None:
    root = ElementTree.Element("testsuites")
    for file, row in sorted(files.items()):
        suite = ElementTree.SubElement(root, "testsuite", name=file, tests=str(len(row)))
        for test, (verdict, seconds) in row.items():
            case = ElementTree.SubElement(suite, "testcase", name=test, classname=file, time=str(seconds))
            status, _, reason = verdict.partition(": ")
            if status in ("SKIP", "IMPOSSIBLE", "NOT_OFFERED"):
                ElementTree.SubElement(case, "skipped", message=reason)
            elif status not in ("PASS", "VACUOUS"):
                ElementTree.SubElement(case, "failure", type=status, message=reason)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
