"""A misspelt option of torchport's behind the script is refused; the words of real scripts are not."""

from __future__ import annotations

import argparse
import importlib
import tomllib
from pathlib import Path

import pytest

from torchport.cli import main
from torchport.errors import TorchportError
from torchport.launch import refuse_misspelt, split_words
from torchport.launch.misspelt import count_slips, find_near_option

COMMANDS = ("analyze", "bisect", "port", "predict", "run")
PUBLIC = tomllib.loads(Path(__file__).with_name("data").joinpath("public_options.toml").read_text())
# As `--nnodes` and `--level` of `torchport run`; the scripts that have them name them.
NEAR = {"--nodes", "--levels"}


def parser_of(command: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False)
    importlib.import_module(f"torchport.cli.{command}").add_arguments(made)
    for name in ("--json", "--debug", "--quiet"):
        made.add_argument(name, action="store_true")
    return made


def refusal(command: str, words: list[str]) -> str:
    parser = parser_of(command)
    try:
        refuse_misspelt(command, parser, words, split_words(parser, words))
    except TorchportError as error:
        return f"{error.message}\n{error.hint}"
    return ""


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_of_a_public_script_is_refused(command: str, tmp_path: Path) -> None:
    assert len(PUBLIC) > 50
    script = tmp_path / "train.py"
    for name, row in PUBLIC.items():
        options = row["options"].split()
        script.write_text("" if row.get("unnamed") else "\n".join(f"add({option!r})" for option in options))
        assert not refusal(command, [str(script), *options]), name


@pytest.mark.parametrize("command", COMMANDS)
def test_few_would_be_where_the_script_does_not_name_them(command: str) -> None:
    options = [one for action in parser_of(command)._actions for one in action.option_strings if one.startswith("--")]
    words = {word for row in PUBLIC.values() for word in row["options"].split()}
    assert {word for word in words if find_near_option(word, options)} <= NEAR


MISSPELT = [
    ("run", "--recrod", "--record"),
    ("run", "--keep_last", "--keep-last"),
    ("run", "--asis", "--as-is"),
    ("run", "--chek-memroy", "--check-memory"),
    ("run", "--node-rnak", "--node-rank"),
    ("port", "--stpes", "--steps"),
    ("port", "--step", "--steps"),
    ("port", "--Steps", "--steps"),
    ("port", "--timout", "--timeout"),
    ("port", "--tolerence", "--tolerance"),
    ("port", "--otu", "--out"),
    ("port", "--nprocs", "--nproc"),
    ("port", "-steps", "--steps"),
    ("bisect", "--refrence", "--reference"),
    ("predict", "--htlm", "--html"),
    ("analyze", "--htlm", "--html"),
    ("analyze", "--sairf", "--sarif"),
]


@pytest.mark.parametrize(("command", "word", "meant"), MISSPELT)
def test_a_slip_is_refused_with_both_readings(command: str, word: str, meant: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nprint(torch.ones(2).sum())\n")
    words = [str(script), "--lr", "1", word, "3", "--quiet", "--", "-x"]
    said = refusal(command, words)
    assert said.splitlines() == [
        f"{word} is no option of torchport {command}, and {script} does not name it",
        f"If {meant} is meant: torchport {command} {script} --lr 1 {meant} 3 --quiet -- -x",
        f"  For the script: torchport {command} {script} --quiet -- --lr 1 {word} 3 -x",
    ]
    joined = refusal(command, [str(script), f"{word}=3"])
    assert f"{script} {meant}=3" in joined
    assert f"{script} -- {word}=3" in joined
    assert not refusal(command, [str(script), "--", word, "3"])
    assert not refusal(command, ["--", "torchrun", str(script), word, "3"])


@pytest.mark.parametrize(
    "word", ["--stp", "--lr", "--s", "-s", "-3", "3", "stpes", "--steps", "--out_dir", "--main", "--form"]
)
def test_another_word_is_the_scripts(word: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert not refusal("predict", [str(script), word])


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": "parser.add_argument('--stpes')"},
        {"train.py": "@dataclass\nclass A:\n    stpes: int = 3\n"},
        {"train.py": "import options", "options.py": "import more", "more.py": "flags.DEFINE_integer('stpes', 3, '')"},
        {"train.py": "from tool.cli import main", "tool/cli.py": "def main(stpes=1): ..."},
    ],
    ids=["its own", "a field", "two imports away", "a package"],
)
def test_a_word_that_the_project_names_is_the_scripts(files: dict[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert not refusal("port", [str(tmp_path / "train.py"), "--stpes", "3"])
    assert refusal("port", [str(tmp_path / "train.py"), "--tseps", "3"])


def test_the_command_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    assert main(["run", str(script), "--recrod", "out"]) == 2
    assert "--recrod is no option of torchport run" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "other.py"), "--recrod", "out"]) == 2
    assert "there is no script" in capsys.readouterr().err


def test_slips_are_counted() -> None:
    assert [count_slips(*pair) for pair in (("htlm", "html"), ("a", ""), ("abc", "abc"), ("abcd", "badc"))] == [
        1,
        1,
        0,
        2,
    ]
