"""`torchport convert` and `torchport analyze` as a user calls them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
CUDA = "import torch\nx = torch.ones(2).cuda()\n"


def torchport(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "torchport", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_diff_is_a_patch_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(CUDA)
    done = torchport("convert", "t.py", "--diff", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("--- a/t.py\n+++ b/t.py\n")
    assert "2 safe changes" in done.stderr
    assert (tmp_path / "t.py").read_text() == CUDA


def test_write_undo(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(CUDA)
    assert torchport("convert", "t.py", "--write", cwd=tmp_path).returncode == 0
    assert ".npu()" in (tmp_path / "t.py").read_text()
    assert "restored 1" in torchport("convert", "t.py", "--undo", cwd=tmp_path).stdout
    assert (tmp_path / "t.py").read_text() == CUDA


def test_json(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(CUDA)
    done = torchport("convert", "t.py", "-o", "out", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert result["data"]["changed"] == ["t.py"]
    assert (tmp_path / "out" / "t.py").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [(CUDA, 0), ("x = 1\n", 0), ("import torch\ntorch.cuda.get_arch_list()\n", 1), ("def cuda(:\n", 1)],
)
def test_analyze_exit_codes(tmp_path: Path, text: str, code: int) -> None:
    (tmp_path / "t.py").write_text(text)
    done = torchport("analyze", "t.py", cwd=tmp_path)
    assert done.returncode == code
    assert "1 file: " in done.stdout


def test_analyze_answers_the_question(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\nx = torch.ones(1).cuda()\ny = 'cuda'\ntorch.cuda.get_arch_list()\nm = torch.nn.DataParallel(m)\n"
    )
    *_, counts, answer, blocks, meant, first, second, third, fourth = torchport(
        "analyze", ".", cwd=tmp_path
    ).stdout.splitlines()
    assert counts.startswith("1 file: 2 changes are automatic") and counts.endswith("1 blocks the port")
    assert answer == "1 blocker keeps this from running on an NPU. 40 % of the places are automatic."
    assert blocks == "blocks: torch.cuda.get_arch_list does not exist on the NPU: a.py:4 needs it, without another way"
    assert re.fullmatch(r"meant: torch [\d.]+, torch_npu [\d.]+, CANN [\d.]+", meant)
    assert [first, second] == ["next: torchport explain TP101", "next: torchport explain TP110"]
    assert third == "next: torchport convert . --diff" and fourth.startswith("next: torchport convert")


def test_missing_path(tmp_path: Path) -> None:
    done = torchport("analyze", "none.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no file or folder none.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_user_code_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import torch\nopen('ran', 'w')\nx.cuda()\n")
    (tmp_path / "torch.py").write_text("open('imported', 'w')\n")
    torchport("convert", ".", "--write", cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".torchport", "t.py", "torch.py"]


def test_works_without_torch(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(CUDA)
    block = "import sys; sys.modules['torch'] = None; from torchport.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", block, "convert", "t.py", "--diff"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True)
    assert done.returncode == 0
