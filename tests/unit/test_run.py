"""torchport run: the process becomes the script."""

import signal
import subprocess
import sys

import pytest


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libascendcl.so").touch()
    monkeypatch.setenv("VNPU_LIBRARIES", str(tmp_path / "lib"))
    monkeypatch.delenv("TORCHPORT_BACKEND", raising=False)

    def run(text, *words):
        (tmp_path / "script.py").write_text(text)
        command = [sys.executable, "-m", "torchport", "run", str(tmp_path / "script.py"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("statement", "status"),
    [("pass", 0), ("sys.exit(7)", 7), ("1/0", 1), ("os.kill(os.getpid(), 11)", -signal.SIGSEGV)],
)
def test_the_exit_status_is_the_scripts(run, statement, status):
    assert run(f"import os, sys\n{statement}").returncode == status


def test_arguments_and_the_device_arrive(run):
    ended = run(
        "import os, sys\nprint(sys.argv[1:], os.environ['TORCHPORT_BACKEND'])", "--", "--epochs", "3", "--"
    )
    assert ended.stdout == "['--epochs', '3', '--'] vnpu\n"


def test_a_forgotten_separator_is_explained(run):
    ended = run("pass", "--epochs", "3")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "unrecognized arguments: --epochs 3 (the script's own arguments follow after `--`)" in ended.stderr
    ended = run("pass", "--nprok", "3", "--", "--epochs")
    assert ended.returncode == 2 and ended.stderr.endswith("unrecognized arguments: --nprok 3\n")


def test_json_is_refused_because_stdout_is_the_scripts(run):
    ended = run("print('hello')", "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--audit FILE" in ended.stderr


def test_a_missing_script_is_a_usage_error():
    ended = subprocess.run(
        [sys.executable, "-m", "torchport", "run", "absent.py"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "there is no script absent.py" in ended.stderr
