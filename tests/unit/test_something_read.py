"""Nothing to read is no success: an empty folder, one without Python, a damaged notebook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchport.cli import main

CELL = {"cell_type": "code", "source": ["import torch\n"], "metadata": {}, "outputs": [], "execution_count": None}
NOTEBOOK = json.dumps({"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
COMMANDS = (["check"], ["analyze"], ["convert", "--diff"], ["convert", "--write"], ["convert", "-o", "out"])

NOTHING = {
    "an empty folder": ({}, "", "the folder {root} is empty"),
    "text alone": ({"README.md": "# cuda\n", "data.csv": "1,2\n"}, "", "there is no Python in the folder {root}"),
    "folders without files": ({"a/b/.git/x": ""}, "", "the folder {root} is empty"),
    "configurations that say nothing": ({"conf/a.yaml": "lr: 1\n"}, "", "there is no Python in the folder {root}"),
    "a cut notebook": ({"a.ipynb": NOTEBOOK[:-9]}, "a.ipynb", "{root}: the notebook is not JSON"),
    "a cut notebook with CUDA": (
        {"a.ipynb": NOTEBOOK.replace("torch", "torch.cuda")[:-9]},
        "a.ipynb",
        "{root}: the notebook is not JSON",
    ),
    "a pointer of git-lfs": (
        {"nb/a.ipynb": "version https://git-lfs.github.com/spec/v1\n"},
        "",
        "there is no code to read in {root}: nb/a.ipynb: the notebook is not JSON",
    ),
    "a notebook of format 3": ({"a.ipynb": '{"worksheets": []}'}, "a.ipynb", "{root}: the notebook has no cells"),
    "a notebook without code": ({"a.ipynb": '{"cells": []}'}, "a.ipynb", "{root}: the notebook has no Python"),
    "an empty notebook": ({"a.ipynb": ""}, "a.ipynb", "{root}: the notebook is not JSON"),
    "empty Python files": (
        {"p/__init__.py": "", "train.py": "\n"},
        "",
        "there is no code to read in {root}: train.py: the file is empty, and 1 more like it",
    ),
    "an empty script": ({"train.py": ""}, "train.py", "{root}: the file is empty"),
    "an environment alone": ({".venv/lib/a.py": "import torch\n"}, "", "none of the Python files in {root} was read"),
    "another kind of file": ({"weights.pt": "x"}, "weights.pt", "{root}: it is no Python"),
}
READ = {
    "a package's file beside an empty one": ({"a/__init__.py": "", "a/b.py": "x = 1\n"}, ""),
    "a requirement list by its name": ({"requirements.txt": "numpy\n"}, "requirements.txt"),
    "an image by its folder": ({"Dockerfile": "FROM nvidia/cuda:12.1.0-devel\n"}, ""),
    "a notebook of shell lines": ({"a.ipynb": NOTEBOOK.replace("import torch", "!pip list")}, "a.ipynb"),
    "a file that is not Python 3": ({"a.py": "print 'cuda'\n"}, "a.py"),
    "a script by its first line": ({"train": "#!/usr/bin/env python\nx = 1\n"}, ""),
}


def write(folder: Path, files: dict[str, str]) -> Path:
    root = folder / "p"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kind", NOTHING)
def test_nothing_to_read_is_exit_code_2(
    kind: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files, name, sentence = NOTHING[kind]
    root = write(tmp_path, files) / name
    assert main([*command, str(root)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence.format(root=root) in captured.err
    assert len(captured.err.splitlines()) == 2  # the sentence, and what to do
    assert not Path("out").exists()


@pytest.mark.parametrize("kind", READ)
def test_something_was_read(kind: str, tmp_path: Path) -> None:
    files, name = READ[kind]
    root = write(tmp_path, files) / name
    for command in COMMANDS[:3]:
        assert main([*command, str(root)]) in (0, 1)


def test_a_damaged_notebook_beside_code_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path, {"train.py": "import torch\n", "a.ipynb": NOTEBOOK[:-9], "good.ipynb": NOTEBOOK})
    assert main(["check", str(root)]) == 1
    said = capsys.readouterr().out
    assert "a.ipynb" in said
    assert "TP901" in said
    assert "good.ipynb" not in said
