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
    ended = run("import os, sys\nprint(sys.argv[1:], os.environ['TORCHPORT_BACKEND'])", "--", "--epochs", "3", "--")
    assert ended.stdout == "['--epochs', '3', '--'] vnpu\n"


def test_words_behind_the_script_that_are_not_ours_are_the_scripts(run):
    show = "import sys\nprint(sys.argv[1:])"
    ended = run(show, "--epochs", "3", "-q", "--lr", "-1", "--", "-q")
    assert ended.stdout == "['--epochs', '3', '--lr', '-1', '-q']\n"


def test_an_unknown_word_in_front_of_the_script_is_refused(tmp_path):
    (tmp_path / "script.py").write_text("pass")
    command = [sys.executable, "-m", "torchport", "run", "--nprok=3", "script.py"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2 and ended.stderr.endswith("unrecognized arguments: --nprok=3\n")


def test_a_word_of_both_is_refused_with_both_spellings(run, tmp_path):
    text = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--audit')\nprint(p.parse_args())"
    ended = run(text, "--audit", "x")
    script = tmp_path / "script.py"
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"--audit is an option of torchport run and of {script}" in ended.stderr
    assert f"For torchport: torchport run --audit x {script}\n" in ended.stderr
    assert f"For the script: torchport run {script} -- --audit x\n" in ended.stderr
    assert run(text, "--", "--audit", "x").stdout == "Namespace(audit='x')\n"


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
