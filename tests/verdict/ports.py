"""Makes the rows of the matrix: ports a script, sabotages copies of its port, and runs those again.

Each script is ported in a folder of its own, as a user would have it. A sabotaged port is a copy of OUT with one edit in
OUT/convert/tree and `torchport port --from npu`: the reference is not run again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import acting
import matrix
from matrix import HEALTHY, SCRIPTS, Row, TableError

from torchport.record.recording import Recording

RUN, COMMAND = 300, 1000  # seconds for one run of a script, and for a whole port
# Made by the run of the port and by what follows it.
_LATER = ("npu", "compare", "result.json", "report.html")


class Ports:
    """Ports below the folder `work`, which is made; `jobs` at a time, with the options `options`."""

    def __init__(self, work: Path, jobs: int, options: Sequence[str] = ()) -> None:
        self._work = work
        self._jobs = jobs
        self._options = options
        self._edits, self._ranks = matrix.load()

    def rows(self, cells: Mapping[str, list[str]]) -> Iterator[tuple[str, str, Row | TableError]]:
        """Script, column and row of each script's healthy port and of its columns `cells`, as they are done.

        In place of a row the error of an edit that does not fit, or whose port fails. Raises RuntimeError for a port
        without a result.
        """
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                yield from self._done(pool, cells)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _done(
        self, pool: ThreadPoolExecutor, cells: Mapping[str, list[str]]
    ) -> Iterator[tuple[str, str, Row | TableError]]:
        def submit(work: Callable[..., Row], script: str, column: str, *rest: str) -> None:
            running[pool.submit(work, script, *rest)] = (script, column)

        running: dict[Future[Row], tuple[str, str]] = {}
        for script in cells:
            submit(self.healthy, script, HEALTHY)
        while running:
            future = next(as_completed(running))
            script, column = running.pop(future)
            try:
                yield script, column, future.result()
            except TableError as error:
                yield script, column, error
            if column == HEALTHY:
                for name in cells[script]:
                    submit(self.sabotaged, script, name, name)

    def healthy(self, script: str) -> Row:
        """The row of the port as it was converted; its files stay for those that are made from it."""
        folder = self._work / script
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SCRIPTS / f"{script}.py", folder / f"{script}.py")
        out = self._out(script, HEALTHY)
        shutil.rmtree(out, ignore_errors=True)
        return _row(self._port(script, out), acts="")

    def sabotaged(self, script: str, column: str) -> Row:
        """The row of a sabotaged copy of the healthy port."""
        whole, out = self._out(script, HEALTHY), self._out(script, column)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(whole, out, symlinks=True, ignore=_left_out(whole))
        converted = out / "convert" / "tree" / f"{script}.py"
        where = f"{script}, {column}"
        text = matrix.sabotaged(
            converted.read_text(encoding="utf-8"), self._edits[script][column], f"cells.toml: {where}"
        )
        converted.write_text(text, encoding="utf-8")
        result = self._port(script, out, "--from", "npu")
        port = Recording.from_directory(out / "npu")
        if port.status:
            said = "\n".join(port.last_messages)
            raise TableError(f"{where}: the port ends with exit status {port.status}\n{said}")
        row = _row(result, acting.change(Recording.from_directory(whole / "npu"), port))
        shutil.rmtree(out)
        return row

    def _out(self, script: str, column: str) -> Path:
        return self._work / "out" / f"{script}-{column.replace(' ', '-')}"

    def _port(self, script: str, out: Path, *options: str) -> Mapping[str, Any]:
        ranks = ["--nproc", str(self._ranks[script])] if script in self._ranks else []
        command = [
            sys.executable,
            "-m",
            "torchport",
            "port",
            "--no-operators",
            f"{script}.py",
            "--out",
            str(out),
            "--json",
            *ranks,
        ]
        run = subprocess.run(
            [*command, "--timeout", str(RUN), *self._options, *options],
            cwd=self._work / script,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=COMMAND,
            check=False,
        )
        if not run.stdout:
            raise RuntimeError(f"{script}: `torchport port` ends with {run.returncode}\n{run.stderr}")
        result: Mapping[str, Any] = json.loads(run.stdout)
        return result


def _left_out(whole: Path) -> Callable[[str, list[str]], list[str]]:
    return lambda folder, names: [name for name in names if Path(folder) == whole and name in _LATER]


def _row(result: Mapping[str, Any], acts: str) -> Row:
    """What a result of `torchport port` says."""
    data = result["data"]
    said = [finding for finding in result["findings"] if finding["message"] == data["reason"]]
    code = said[0]["code"] if said else ""
    comparison = data["comparison"] or {}
    first = (comparison.get("first") or [None])[0]
    if data["verdict"] == matrix.HOLDS:
        noticed = ""
    elif first:
        noticed = f"{first['kind']}, step {first['step']}"
    else:
        steps = [finding["evidence"]["step"] for finding in said if "step" in finding["evidence"]]
        noticed = f"{code}, step {steps[0]}" if steps else ""
    return Row(data["verdict"], code, noticed, acts)
