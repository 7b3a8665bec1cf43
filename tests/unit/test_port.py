"""The driver of a port: its steps, its files, and what it does with scripts that do not behave.

The scripts keep torch_npu from loading, so that both runs are on the CPU; the runs on the device are in tests/vnpu.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchport.findings import Result

TRAIN = """
import os, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
import shapes
model = torch.nn.Linear(shapes.INPUTS, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    x = torch.rand(16, shapes.INPUTS)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"final loss {loss.item():.4f}", open(os.path.join(os.path.dirname(__file__), "data.txt")).read())
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with an empty library where the driver looks for the device."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libascendcl.so").touch()
    monkeypatch.setenv("VNPU_LIBRARIES", str(tmp_path / "lib"))
    monkeypatch.delenv("TORCHPORT_BACKEND", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words):
    return [sys.executable, "-m", "torchport", "port", *words]


def port(*words):
    return subprocess.run(command(*words), capture_output=True, text=True, check=False, timeout=100)


def script(place, text, name="train.py"):
    (place / name).write_text(text)
    return name


def processes(mark):
    """Living processes whose environment holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state not in "ZX" and int(entry.name) != os.getpid() else []
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)


def test_a_script_that_ports(place):
    script(place, "INPUTS = 3", "shapes.py")
    (place / "data.txt").write_text("DATA")
    run = port(script(place, TRAIN), "--", "9")
    assert run.returncode == 0, run.stderr
    assert "train.py: the port holds (9 steps compared step by step, float32)" in run.stdout
    assert [line.split()[:2] for line in run.stderr.splitlines()] == [
        ["1/4", "convert"], ["2/4", "reference"], ["3/4", "npu"], ["4/4", "compare"],
    ]  # fmt: skip
    out = place / "torchport-out" / "train"
    result = Result.read(out / "result.json")
    assert result.data["holds"] is True
    assert result.data["comparison"]["steps"] == {"reference": 9, "port": 9}
    assert result.data["comparison"]["worst"]["run"] == 0.0
    assert (out / "reference" / "stdout.txt").read_text().endswith("DATA\n")
    assert (out / "convert" / "tree" / "shapes.py").exists()
    assert not list(out.glob("*.unfinished"))

    kept = (out / "npu" / "steps.jsonl").stat().st_mtime_ns
    again = port("train.py", "--from", "compare", "--json", "--", "9")
    assert json.loads(again.stdout)["data"]["holds"] is True
    assert (out / "npu" / "steps.jsonl").stat().st_mtime_ns == kept

    whole = (out / "reference" / "result.json").read_text()
    for damage in (
        whole[:100],
        whole.replace('"status": 0', '"status": "?"'),
        whole.replace('"wrote"', '"w"'),
        "[]",
    ):
        assert damage != whole
        (out / "reference" / "result.json").write_text(damage)
        damaged = port("train.py", "--from", "compare", "--", "9")
        assert damaged.returncode == 2
        assert "reference/result.json" in damaged.stderr
        assert "internal error" not in damaged.stderr
    (out / "reference" / "result.json").write_text(whole)

    assert port("train.py", "--from", "compare", "--", "8").returncode == 2
    for name, text, before in (("shapes.py", "INPUTS = 2", "INPUTS = 3"), ("train.py", TRAIN + "#", TRAIN)):
        script(place, text, name)
        changed = port("train.py", "--from", "compare", "--", "9")
        assert changed.returncode == 2
        assert f"result.json was made: {name}\n" in changed.stderr
        script(place, before, name)
    assert port("train.py", "--from", "compare", "--", "9").returncode == 0


def test_a_missing_script(place):
    run = port("absent.py")
    assert (run.returncode, run.stdout) == (2, "")
    assert "the script absent.py is not there" in run.stderr
    assert not (place / "torchport-out").exists()


def test_a_syntax_error(place):
    run = port(script(place, "import torch\nfor x in\n"))
    assert run.returncode == 2
    assert "train.py:2: the script has a syntax error" in run.stderr
    assert not (place / "torchport-out").exists()


@pytest.mark.parametrize("text", ["\0", "# coding: nonsense\n", "x = '\\ud800'\nb'\xff"])
def test_what_is_not_python(place, text):
    run = port(script(place, text))
    assert run.returncode == 2
    assert "train.py" in run.stderr
    assert "None" not in run.stderr
    assert "Traceback" not in run.stderr


def test_an_output_folder_that_cannot_be_one(place):
    name = script(place, "print()")
    for folder, says in (
        ("train.py", "train.py is a file"),
        ("/proc/x", "/proc/x: No such file or directory"),
    ):
        run = port(name, "--out", folder)
        assert run.returncode == 2
        assert says in run.stderr
        assert "internal error" not in run.stderr


def test_no_device(place, monkeypatch):
    monkeypatch.setenv("VNPU_LIBRARIES", "nowhere")
    run = port(script(place, "print()"))
    assert run.returncode == 2
    assert "no NPU backend" in run.stderr
    assert not (place / "torchport-out").exists()


def test_from_without_files(place):
    run = port(script(place, "print()"), "--from", "npu")
    assert run.returncode == 2
    assert "--from npu needs the step convert" in run.stderr


def test_a_script_that_fails(place):
    run = port(
        script(
            place,
            "import sys\nprint('words', file=sys.stderr)\ndef main():\n    raise ValueError('no good')\nmain()\n",
        )
    )
    assert run.returncode == 1
    assert "exit status 1 before the first step: ValueError: no good" in " ".join(run.stdout.split())
    assert "| words" in run.stdout
    assert "record" not in run.stdout  # no frame of ours in the script's traceback
    result = Result.read(place / "torchport-out" / "train" / "result.json")
    (failed, not_run) = result.findings
    assert (failed.code, failed.location.line, not_run.code) == ("TP310", 4, "TP312")


def test_a_port_that_fails_where_the_original_does_not(place):
    run = port(script(place, "import os\nos._exit(4 if 'tree' in __file__ else 0)\n"))
    assert run.returncode == 1
    assert "the port ended with exit status 4" in run.stdout


def test_a_script_that_crashes(place):
    run = port(script(place, "import ctypes\nctypes.string_at(0)\n"))
    assert run.returncode == 1
    assert "the original ended with signal SIGSEGV" in run.stdout


def test_a_script_that_exits_0_and_trains_nothing(place):
    run = port(script(place, "print('hello')"))
    assert run.returncode == 1
    assert "no loss was recorded" in run.stdout


def test_files_that_one_run_leaves_for_the_next_are_named(place):
    text = "import os, sys\nfound = os.path.exists('last.pt')\nopen('last.pt', 'w').close()\nsys.exit(3 * found)\n"
    run = port(script(place, text))
    assert run.returncode == 1
    assert "the original's run wrote last.pt into the current folder" in " ".join(run.stdout.split())


HANG = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("started", flush=True)
def stuck():
    time.sleep(600)
stuck()
"""


def test_a_script_that_hangs(place, monkeypatch):
    monkeypatch.setenv("MARK_OF_THIS_TEST", str(place))
    run = port(script(place, HANG), "--timeout", "2")
    assert run.returncode == 1
    assert "did not finish within 2 s" in run.stdout
    result = Result.read(place / "torchport-out" / "train" / "result.json")
    assert (result.findings[0].code, result.findings[0].location.line) == ("TP311", 6)
    assert processes(f"MARK_OF_THIS_TEST={place}") == []


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_an_interrupt_leaves_whole_files_and_no_process(place, monkeypatch, number, status):
    monkeypatch.setenv("MARK_OF_THIS_TEST", str(place))
    out = place / "torchport-out" / "train"
    driver = subprocess.Popen(
        command(script(place, HANG)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    printed = out / "reference.unfinished" / "stdout.txt"
    wait_for(lambda: printed.exists() and printed.read_text())
    driver.send_signal(number)
    _, messages = driver.communicate(timeout=30)
    assert driver.returncode == status
    assert "Traceback" not in messages
    words = {130: "torchport port: interrupted", -9: ""}.get(
        status, f"torchport port: ended by {number.name}"
    )
    assert words in messages
    assert Result.read(out / "convert" / "result.json").command == "convert"
    if (
        number == signal.SIGKILL
    ):  # no clean-up can run: the script itself must be gone, what it started may not be
        wait_for(lambda: not any(map(runs_the_script, processes(f"MARK_OF_THIS_TEST={place}"))))
        for process in processes(f"MARK_OF_THIS_TEST={place}"):
            os.kill(process, signal.SIGKILL)
    else:
        assert processes(f"MARK_OF_THIS_TEST={place}") == []
        assert sorted(path.name for path in out.iterdir()) == ["convert"]


def runs_the_script(process):
    """By the words of its command line: the interpreter's own path may hold any name."""
    words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
    return any(Path(word).name == "train.py" for word in words)


def test_a_repeated_step_that_is_interrupted_leaves_the_finished_one(place):
    name = script(
        place,
        "import os, time\nprint('started', flush=True)\ntime.sleep(600 if os.path.exists('hang') else 0)\n",
    )
    assert port(name).returncode == 1  # nothing is trained, but every step is there
    (place / "hang").touch()
    out = place / "torchport-out" / "train"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    driver = subprocess.Popen(command(name, "--from", "reference"), stderr=subprocess.PIPE)
    printed = out / "reference.unfinished" / "stdout.txt"
    wait_for(lambda: printed.exists() and printed.read_text())
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=30)
    assert driver.returncode == 130
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_modules_of_the_script_are_found(place):
    from torchport.port.modules import local_modules

    (place / "pkg" / "sub").mkdir(parents=True)
    for name, text in {
        "train.py": "import os, json\nfrom pkg.sub import thing\nimport helper as h",
        "helper.py": "import broken",
        "broken.py": "def",
        "unused.py": "",
        "pkg/__init__.py": "from . import sibling",
        "pkg/sibling.py": "from .sub.other import x",
        "pkg/sub/__init__.py": "",
        "pkg/sub/thing.py": "from .. import deep",
        "pkg/sub/other.py": "",
        "pkg/deep.py": "",
    }.items():
        (place / name).write_text(text)
    found = {path.relative_to(place).as_posix() for path in local_modules(place / "train.py")}
    assert found == {
        "train.py", "helper.py", "broken.py", "pkg/__init__.py", "pkg/sibling.py", "pkg/sub/__init__.py",
        "pkg/sub/thing.py", "pkg/sub/other.py", "pkg/deep.py",
    }  # fmt: skip
