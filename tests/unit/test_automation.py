"""The files by which other tools call `torchport check`: the GitHub Action and the pre-commit hook."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from torchport.cli import check

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
CUDA = "import torch\ntorch.cuda.get_arch_list()\n"


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    return parser


def test_inputs_are_the_options_of_check(parser: argparse.ArgumentParser) -> None:
    known = {action.dest for action in parser._actions} - {"help"}
    assert set(ACTION["inputs"]) == known
    step = ACTION["runs"]["steps"][1]
    assert {f"CHECK_{name.upper()}" for name in known} == set(step["env"])
    for name in known:
        assert step["env"][f"CHECK_{name.upper()}"] == f"${{{{ inputs.{name} }}}}"
        assert f"$CHECK_{name.upper()}" in step["run"]


@pytest.mark.parametrize(
    ("text", "settings", "code"),
    [
        ("import torch\ntorch.cuda.init()\n", {}, 0),
        ("import torch\ntorch.cuda.init()\n", {"CHECK_STRICT": "true"}, 1),
        (CUDA, {}, 1),
        (CUDA, {"CHECK_SARIF": "out file.sarif"}, 1),
    ],
)
def test_step_runs_as_written(tmp_path: Path, text: str, settings: dict[str, str], code: int) -> None:
    programs = tmp_path / "temp" / "torchport" / "bin"
    programs.mkdir(parents=True)
    (programs / "torchport").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m torchport "$@"\n')
    (programs / "torchport").chmod(0o755)
    project = tmp_path / "my project"
    project.mkdir()
    (project / "a.py").write_text(text)
    defaults = {f"CHECK_{name.upper()}": row["default"] for name, row in ACTION["inputs"].items()}
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        **defaults,
        "CHECK_PATH": "my project",
        **settings,
    }
    script = ACTION["runs"]["steps"][1]["run"]
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "out file.sarif").exists() == ("CHECK_SARIF" in settings)


def test_hook_calls_check() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"].split() == ["torchport", "check"]
    assert hook["language"] == "python" and hook["pass_filenames"] is False
