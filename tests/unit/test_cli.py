"""The command line framework: finding commands, parsing, exit codes, error output."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import __version__, cli

SAMPLE = '''"""Try the framework.

Example: torchport sample a --fail bug
"""
import json
from torchport.errors import TorchportError
PASSES_ARGUMENTS = True

def add_arguments(parser):
    parser.add_argument("path")
    parser.add_argument("--fail")

def run_command(arguments):
    if arguments.fail == "user":
        raise TorchportError("no such file: a.py", hint="Check the path.", exit_code=1)
    if arguments.fail == "bug":
        raise ZeroDivisionError("oops")
    if arguments.fail == "file":
        open("/nowhere/at/all", "w")
    if arguments.fail == "disk":
        open("/dev/full", "wb", buffering=0).write(b"x")
    if arguments.fail == "interrupt":
        raise KeyboardInterrupt
    print(json.dumps({"path": arguments.path, "passed": arguments.passed, "json": arguments.json}))
    return 0
'''


@pytest.fixture(autouse=True)
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command folder beside the real one, with the command `sample`."""
    (tmp_path / "sample.py").write_text(SAMPLE)
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torchport.cli.sample", raising=False)


def test_scan_finds_commands_in_order() -> None:
    names = cli.command_names()
    assert "sample" in names
    assert list(names) == sorted(names)


def test_every_real_command_explains_itself_with_an_example_or_usage() -> None:
    for name in cli.command_names():
        assert cli._summary(name), f"cli/{name}.py has no docstring: it is the help text"


def test_words_after_the_double_dash_arrive_untouched(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", "a.py", "--", "--epochs", "3", "--", "--debug"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": "a.py",
        "passed": ["--epochs", "3", "--", "--debug"],
        "json": False,
    }


def test_without_double_dash_nothing_is_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", "a.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": "a.py", "passed": [], "json": True}


def test_words_that_the_command_does_not_know_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", "a.py", "--epochs", "3", "--json", "more", "--", "--fail"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": "a.py",
        "passed": ["--epochs", "3", "more", "--fail"],
        "json": True,
    }


def test_user_error_prints_message_and_hint_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", "a", "--fail", "user"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "torchport sample: no such file: a.py\n  Check the path.\n"


def test_debug_adds_the_traceback_and_keeps_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", "a", "--fail", "user", "--debug"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_internal_error_is_called_a_bug_and_leaves_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["sample", "a", "--fail", "bug"]) == cli.INTERNAL_ERROR
    error = capsys.readouterr().err
    assert "Traceback" not in error
    (log,) = tmp_path.glob("torchport-sample-*.log")
    assert str(log) in error
    assert "ZeroDivisionError: oops" in log.read_text()


@pytest.mark.parametrize(
    ("fail", "says"), [("file", "/nowhere/at/all: No such file or directory"), ("disk", "No space left on device")]
)
def test_what_the_machine_refuses_is_not_called_a_bug(fail: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", "a", "--fail", fail]) == cli.USAGE
    error = capsys.readouterr().err
    assert error.startswith(f"torchport sample: {says}\n  Give a place")
    assert cli.main(["sample", "a", "--fail", fail, "--debug"]) == cli.USAGE
    assert "Traceback" in capsys.readouterr().err


def test_numbers_that_are_none_are_named_as_the_user_wrote_them(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["port", "a.py", "--timeout", "soon"],
        ["analyze", "a.py", "--run", "--steps", "few"],
        ["run", "a.py", "--nproc", "two"],
        ["run", "a.py", "--nproc", "-1"],
        ["run", "a.py", "--device-list", "0,b"],
        ["run", "a.py", "--device-list", "0,0"],
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert f"{words[-2]}: {words[-1]} is no" in error
        assert "invalid _" not in error


def test_a_report_that_cannot_be_stored_names_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x.cuda()\n")
    report = tmp_path / "nowhere" / "report.html"
    assert cli.main(["analyze", str(tmp_path / "a.py"), "--html", str(report)]) == cli.USAGE
    assert f"torchport analyze: {report}: No such file or directory\n" in capsys.readouterr().err


def test_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", "a", "--fail", "interrupt"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "torchport sample: interrupted\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["sampel"], "did you mean 'sample'?"),
        (["qqqqq"], "the commands are"),
        (["sample"], "path"),
        (["sample", "--fial", "a", "x"], "--fial"),
    ],
)
def test_usage_errors(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2
    assert text in capsys.readouterr().err


def test_help_lists_each_command_with_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    output = capsys.readouterr().out
    assert "sample" in output
    assert "Try the framework." in output
    assert "exit codes:" in output
    assert all(f"\n  {code} " in output for code in (0, 1, cli.USAGE, cli.INTERNAL_ERROR, cli.INTERRUPTED))
    assert "torchport.cli.sample" not in sys.modules, "help must not import the commands"


def test_every_command_explains_itself_without_any_package_installed() -> None:
    """Importing a command imports nothing that pip installs: `-S` leaves site-packages out."""
    names = [name for name in cli.command_names() if name != "sample"]
    assert names
    for name in names:
        result = subprocess.run(
            [sys.executable, "-S", "-m", "torchport", name, "--help"],
            env={"PYTHONPATH": str(Path(cli.__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert f"usage: torchport {name}" in result.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"torchport {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["convert", "--help"], ["explain", "TP101"]])
def test_closed_pipe_is_quiet(words: list[str]) -> None:
    """`torchport --help | head -0`: no traceback when nobody reads."""
    nobody, end = os.pipe()
    os.close(nobody)
    # Unbuffered, the error would come while argparse writes, which swallows it.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "torchport", *words]
    result = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    os.close(end)
    assert (result.stderr, result.returncode) == ("", cli.BROKEN_PIPE)


@pytest.mark.parametrize(
    ("redirection", "code", "says"),
    [(">/dev/full", cli.USAGE, "No space left on device"), (">&-", 0, ""), ("2>&-", 0, "")],
)
def test_outputs_that_are_full_or_closed(redirection: str, code: int, says: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m torchport explain TP101 {redirection}"
    program = ["bash", "-c", command]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    assert says in result.stderr
