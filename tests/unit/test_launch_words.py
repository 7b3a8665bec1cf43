"""Whose a word of the command line is: torchport's or the script's."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchport.errors import TorchportError
from torchport.launch import add_target, defined_options, refuse_shared, split_words


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False)
    add_target(made)
    made.add_argument("--out")
    made.add_argument("-t", "--timeout", type=float)
    made.add_argument("-q", "--quiet", action="store_true")
    made.add_argument("--pair", nargs=2)
    return made


OWN = st.sampled_from(
    [["--out", "x"], ["--out=y"], ["-t", "3"], ["-t-1"], ["--timeout", "-1"], ["-q"], ["--quiet"], ["--pair", "a", "b"]]
)
# No word of torchport's, and none that begins one with its value.
FOREIGN = st.from_regex(r"\A(--?[a-su-z0-9][a-z0-9=_.-]{0,6}|[a-z0-9./]{1,8}|-|-\d)\Z").filter(
    lambda word: word.partition("=")[0] not in ("--out", "--timeout", "--quiet", "--pair", "-q", "-h", "--help")
)


@given(
    before=st.lists(OWN),
    target=st.sampled_from([["train.py"], ["-"], ["-m", "pkg.train"], ["-mpkg.train"]]),
    mixture=st.lists(st.one_of(OWN.map(lambda words: (True, words)), FOREIGN.map(lambda word: (False, [word])))),
    after=st.lists(st.text(max_size=5)),
)
def test_any_mixture_comes_apart(
    before: list[list[str]], target: list[str], mixture: list[tuple[bool, list[str]]], after: list[str]
) -> None:
    behind = [word for _, words in mixture for word in words]
    tail = ["--", *after] if after else []
    parts = split_words(parser(), [*chain.from_iterable(before), *target, *behind, *tail])
    own = [words for ours, words in mixture if ours]
    assert list(parts.own) == [*chain.from_iterable(before), *target, *chain.from_iterable(own)]
    assert list(parts.passed) == [*(words[0] for ours, words in mixture if not ours), *after]
    assert [list(words) for words in parts.shared] == own
    found = parser().parse_args(parts.own)
    assert (found.script, found.module) == (parts.script, parts.module)


@pytest.mark.parametrize(
    ("words", "own", "passed"),
    [
        ("train.py --epochs 1", "train.py", "--epochs 1"),
        ("train.py --lr 0.1 --out x", "train.py --out x", "--lr 0.1"),
        ("train.py -m 3 -mx", "train.py", "-m 3 -mx"),
        ("-m pkg.train -m 3", "-m pkg.train", "-m 3"),
        ("--out d train.py sub --x", "--out d train.py", "sub --x"),
        ("-q -- torchrun -q train.py", "-q", "torchrun -q train.py"),
        ("train.py --out -- --out y", "train.py --out", "--out y"),
        ("train.py --out --lr 5", "train.py --out", "--lr 5"),
        ("train.py --quiet=1 -qv", "train.py", "--quiet=1 -qv"),
        ("--what train.py", "--what train.py", ""),
        ("", "", ""),
    ],
)
def test_the_rule(words: str, own: str, passed: str) -> None:
    parts = split_words(parser(), words.split())
    assert (" ".join(parts.own), " ".join(parts.passed)) == (own, passed)


SCRIPT = """
import argparse, click
p = argparse.ArgumentParser()
p.add_argument("-t", "--temperature"); p.add_argument("--out", default="x")
"""


@pytest.mark.parametrize(
    ("words", "both"), [("--out x", "--out"), ("--out=x", "--out"), ("-t 1", "-t"), ("-t1", "-t"), ("-h", "-h")]
)
def test_a_word_of_both_is_refused(tmp_path: Path, words: str, both: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    parts = split_words(parser(), [str(script), *words.split()])
    with pytest.raises(TorchportError) as error:
        refuse_shared("port", parser(), parts)
    assert error.value.message == f"{both} is an option of torchport port and of {script}"
    assert error.value.hint == (
        f"For torchport: torchport port {words} {script}\n  For the script: torchport port {script} -- {words}"
    )
    assert error.value.exit_code == 2


def test_both_spellings_have_the_other_words(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    words = ["sub", "--out", "x", "-n", "3", "--", "--quiet"]
    with pytest.raises(TorchportError) as error:
        refuse_shared("port", parser(), split_words(parser(), [str(script), *words]))
    ours, theirs = error.value.hint.split("\n  ")
    assert ours == f"For torchport: torchport port --out x {script} -- sub -n 3 --quiet"
    assert theirs == f"For the script: torchport port {script} -- sub --out x -n 3 --quiet"
    for hint, passed in ((ours, "sub -n 3 --quiet"), (theirs, "sub --out x -n 3 --quiet")):
        parts = split_words(parser(), hint.partition(" torchport port ")[2].split())
        assert (" ".join(parts.passed), parts.shared) == (passed, ())


def test_a_word_in_front_or_of_one_side_is_not_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    for words in (["-t", "1", "-h", str(script)], [str(script), "--timeout", "1"], [str(script), "--", "-t", "1"]):
        refuse_shared("port", parser(), split_words(parser(), words))
    script.write_text("not python")
    refuse_shared("port", parser(), split_words(parser(), [str(script), "--out", "x"]))


def test_a_word_of_a_module_beside_the_script_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "options.py").write_text(SCRIPT)
    for text in (
        "from cli.options import p",
        "import cli.options",
        "from cli import options",
        "from .cli import options",
    ):
        script.write_text(text)
        with pytest.raises(TorchportError, match="--out is an option of torchport port and of"):
            refuse_shared("port", parser(), split_words(parser(), [str(script), "--out", "x"]))
    script.write_text("from cli import other")
    refuse_shared("port", parser(), split_words(parser(), [str(script), "--out", "x"]))


def test_the_word_is_named_as_it_was_written(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("p.add_argument('-t', '--timeout')")
    with pytest.raises(TorchportError, match=r"^--timeout is an option"):
        refuse_shared("port", parser(), split_words(parser(), [str(script), "--timeout", "1"]))


def test_a_word_of_a_module_and_of_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go.py").write_text("parser.add_argument('--out')")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "options.py").write_text("parser.add_argument('--out')")
    (tmp_path / "pkg" / "train.py").write_text("from pkg.options import parser")
    (tmp_path / "nb.ipynb").write_text(
        '{"cells": [{"cell_type": "code", "source": ["%time\\n", "p.add_argument(\\"--out\\")"]}]}'
    )
    for words in (["-m", "go", "--out", "x"], ["-m", "pkg.train", "--out", "x"], ["nb.ipynb", "--out", "x"]):
        with pytest.raises(TorchportError, match="--out is an option of torchport port and of"):
            refuse_shared("port", parser(), split_words(parser(), words))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("p.add_argument('-a', '--bb', help='--cc')", {"-a", "--bb"}),
        ("p.add_argument('data')", set()),
        ("@click.option('--shout/--no-shout', '-s')\ndef f(): ...", {"--shout", "--no-shout", "-s"}),
        ("x: int = typer.Option(1, '--lr')", {"--lr"}),
        ("flags.DEFINE_integer('steps', 1, '-x')", {"--steps"}),
        ("argparse.ArgumentParser()", {"-h", "--help"}),
        ("ArgumentParser(add_help=False)", set()),
        ("print('--out')", set()),
        ("def (", set()),
    ],
)
def test_options_are_read_from_the_source(text: str, options: set[str]) -> None:
    assert defined_options(text.encode()) == options
