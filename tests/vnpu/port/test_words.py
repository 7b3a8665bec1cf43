"""The word that `torchport port` gives for small scripts in the styles people write: holds, does not hold, undecided.

The scripts in data/ are written as their authors would. Each runs in a folder of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

CASES = Path(__file__).with_name("data")
CODES = {"holds": 0, "does not hold": 1, "undecided": 4}


class Row(NamedTuple):
    """A command line and its word. `files` are copied from data/; `reason` is looked for in `data.reason`."""

    word: str
    files: str
    words: str
    reason: str = ""
    stdin: str = ""


def _checkpoints(folder: Path) -> None:
    for name in ("cuda_model.pt", "m.pt"):
        torch.save({"weight": torch.ones(2)}, folder / name)


def _project(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'mylib'\nversion = '1'\n")


def _installed(folder: Path) -> None:
    (folder / "installed" / "packages" / "trainer-1.dist-info").mkdir()


# What a folder holds beside the files of the row.
PREPARE: dict[str, Callable[[Path], None]] = {
    "multi trains": _checkpoints,
    "library in a project": _project,
    "installed": _installed,
}
VARIABLES = {
    "library": {"PYTHONPATH": "library/lib"},
    "library in a project": {"PYTHONPATH": "library/lib"},
    "installed": {"PYTHONPATH": "installed/packages"},
}
NOT_USED = "did not use the NPU"
ROWS = {
    # pip install --target: the package is converted, and found before the one that is installed
    "installed": Row("holds", "installed", "-m trainer.train"),
    # a module that the workers of a data loader call
    "blurred": Row("holds", "blurred.py", "blurred.py"),
    "acc": Row("holds", "acc.py", "acc.py"),
    "acccount": Row("holds", "acccount.py", "acccount.py"),
    "base": Row("holds", "classifier.py", "classifier.py"),
    "cudaseed": Row("holds", "cudaseed.py", "cudaseed.py"),
    "devinit": Row("holds", "devinit.py", "devinit.py"),
    "grad": Row("holds", "grad.py", "grad.py"),
    "two": Row("holds", "two.py", "two.py"),
    "dp": Row("holds", "dp.py", "dp.py"),
    "subcmd": Row("holds", "subcmd.py", "subcmd.py -- train --steps 8"),
    "comp": Row("holds", "comp.py", "comp.py"),
    "traced": Row("holds", "traced.py", "traced.py"),
    "comp2": Row("holds", "comp2.py", "comp2.py"),
    "comp3": Row("holds", "comp3.py", "comp3.py"),
    "exit3": Row("holds", "exit3.py", "exit3.py"),
    "slow": Row("holds", "slow.py", "--steps 20 slow.py"),
    "evalonly": Row("holds", "evalonly.py", "evalonly.py"),
    "multi trains": Row("holds", "multi_trains.py", "multi_trains.py"),
    "pkg": Row("holds", "pkg", "-m pkg.train"),
    "notebook": Row("holds", "nb.ipynb", "nb.ipynb"),
    "stdin": Row("holds", "classifier.py", "-", stdin="classifier.py"),
    "ddp of two": Row("holds", "ddp.py", "--nproc 2 ddp.py"),
    "ddp by torchrun": Row("holds", "ddp.py", "-- torchrun --nproc-per-node 2 ddp.py"),
    "titan": Row("holds", "titan.py", "--nproc 1 titan.py"),
    "ddp by spawn": Row("holds", "spawned.py", "spawned.py"),
    "library in a project": Row("holds", "library", "library/app/train.py"),
    "cl": Row("holds", "cl.py", "cl.py"),
    "library": Row("does not hold", "library", "library/app/train.py", NOT_USED),
    "dot": Row("does not hold", "dot.py", "dot.py", NOT_USED),
    "tune": Row("undecided", "tune.py", "tune.py", r"original|\.cu\b|CUDA_HOME"),
    "multi": Row("undecided", "multi.py", "multi.py", r"cuda_model\.pt"),
    "ddp": Row("undecided", "ddp.py", "ddp.py", "RANK|--nproc"),
    "never chose": Row("undecided", "never_chose.py", "--nproc 2 never_chose.py", "original fails.*on one GPU.*NCCL"),
}


# Each of these is near a row that `make test` has.
FOR_MAKE_PORTS = {
    "acc",
    "acccount",
    "cudaseed",
    "devinit",
    "grad",
    "dp",
    "comp2",
    "comp3",
    "exit3",
    "slow",
    "evalonly",
    "ddp of two",
    "subcmd",
    "two",
    "tune",
    "library",
    "ddp by torchrun",
    "ddp that spawns",
    "titan",
    "library in a project",
    "cl",
    "dot",
    "comp",
    "pkg",
    "stdin",
    "never chose",
    "ddp by spawn",
}


class Ended(NamedTuple):
    """How a command ended, what it said, and what it kept in result.json."""

    code: int
    stdout: str
    stderr: str
    out: Path
    kept: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """What it says in JSON, which is what it keeps in result.json."""
        assert self.stdout.startswith("{"), self.stderr
        data = json.loads(self.stdout)["data"]
        assert data["verdict"] == self.kept["data"]["verdict"]
        assert self.code == CODES[data["verdict"]]
        return data


def port(folder: Path, words: list[str], stdin: str = "", **variables: str) -> Ended:
    """`torchport port WORDS` in `folder`, where the variables that name paths are below it."""
    command = [sys.executable, "-m", "torchport", "port", "--json", "--out", str(folder / "out"), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.update({name: str(folder / path) for name, path in variables.items()})
    run = subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True, check=False)
    result = folder / "out" / "result.json"
    kept = json.loads(result.read_text()) if result.exists() else {}
    return Ended(run.returncode, run.stdout, run.stderr, folder / "out", kept)


def copied(folder: Path, name: str) -> None:
    source = CASES / name
    if source.is_dir():
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, folder)


def run_row(name: str, folder: Path) -> Ended:
    row = ROWS[name]
    copied(folder, row.files)
    PREPARE.get(name, lambda folder: None)(folder)
    stdin = (CASES / row.stdin).read_text() if row.stdin else ""
    return port(folder, row.words.split(), stdin, **VARIABLES.get(name, {}))


def sabotage(folder: Path, case: str) -> dict[str, Ended]:
    """Port a script, then from the port's run on again for each sabotage of the ported script; "" is the whole one."""
    copied(folder, case)
    found = {"": port(folder, [case])}
    ported = folder / "out" / "convert" / "tree" / case
    before = ported.read_text()
    for name, change in SABOTAGES.items():
        changed = change(before)
        assert changed != before
        ported.write_text(changed)
        found[name] = port(folder, ["--from", "npu", case])
        assert ported.read_text() == changed, "what was edited was run"
    return found


def _without_step(text: str) -> str:
    return re.sub(r"\bopt\.step\(\)", "None", text)


def _three_times(text: str) -> str:
    return re.sub(r"lr=a\.lr|1e-2\)", lambda found: found[0].replace("a.lr", "3 * a.lr").replace("1e-2", "3e-2"), text)


def _on_the_cpu(text: str) -> str:
    text = re.sub(r"\.npu\(\)|\.cuda\(\)", ".cpu()", text)
    return re.sub(
        r'device="(npu|cuda)"|\.to\(device\)', lambda m: 'device="cpu"' if "=" in m[0] else '.to("cpu")', text
    )


SABOTAGES = {"no step": _without_step, "three times the rate": _three_times, "on the CPU": _on_the_cpu}
CASES_CHANGED = ("classifier.py", "cudaseed.py")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.ports] * (name in FOR_MAKE_PORTS)) for name in ROWS]
)
def test_the_word(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    data = run_row(name, tmp_path).data
    assert data["verdict"] == row.word, data["reason"]
    assert re.search(row.reason, data["reason"]), data["reason"]
    if row.word != "holds":
        assert data["reason"], "what does not hold says why"
    if name == "ddp of two":
        used = [(one["rank"], [card["device"] for card in one["cards"]]) for one in data["runs"]["npu"]["cards"]]
        assert used == [(0, ["npu:0"]), (1, ["npu:1"])]
    if name == "exit3":
        assert [data["runs"][side]["status"] for side in ("reference", "npu")] == [3, 3]


@pytest.mark.parametrize("case", [CASES_CHANGED[0], pytest.param(CASES_CHANGED[1], marks=pytest.mark.ports)])
def test_a_broken_port_never_holds(case: str, tmp_path: Path) -> None:
    ended = sabotage(tmp_path, case)
    assert ended[""].data["verdict"] == "holds", "else the next lines show nothing"
    assert {name: one.data["verdict"] for name, one in ended.items() if name} == dict.fromkeys(
        SABOTAGES, "does not hold"
    )
    assert NOT_USED in ended["on the CPU"].data["reason"]


def test_the_sabotages_change_what_they_say() -> None:
    for case in CASES_CHANGED:
        text = (CASES / case).read_text()
        assert "opt.step()" not in _without_step(text)
        assert ("3 * a.lr" in _three_times(text)) != ("3e-2" in _three_times(text))
        assert "cuda()" not in _on_the_cpu(text) and ".to(device)" not in _on_the_cpu(text)
