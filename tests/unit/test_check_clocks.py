"""`tools/check_clocks.py`: the clocks, sleeps and deadlines that it refuses, and its list of exceptions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "tools/check_clocks.py"


def checked(folder: Path, text: str, listed: str = "", name: str = "unit/test_x.py") -> list[str]:
    """Write the file and the list below tests/ in the folder, and return what the checker prints."""
    file = folder / "tests" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (folder / "tests/clocks.toml").write_text(listed)
    run = subprocess.run([sys.executable, CHECK], cwd=folder, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    found = run.stdout.splitlines() if run.returncode else []
    assert found or run.stdout == "no test depends on a clock\n"
    return found


REFUSED = {
    "import time\n\ndef test():\n    time.sleep(1)": "tests/unit/test_x.py:4: time.sleep",
    "import time as t\nt.monotonic()": "tests/unit/test_x.py:2: time.monotonic",
    "from time import perf_counter_ns as now\nnow()": "tests/unit/test_x.py:2: time.perf_counter_ns",
    "def test():\n    import time\n    return time.process_time": "tests/unit/test_x.py:3: time.process_time",
    "import os\nos.times()": "tests/unit/test_x.py:2: os.times",
    "import resource\nresource.getrusage(0).ru_utime": "tests/unit/test_x.py:2: ru_utime",
    "import threading\nthreading.Timer(1, print)": "tests/unit/test_x.py:2: threading.Timer",
    "import asyncio\nasyncio.sleep(1)": "tests/unit/test_x.py:2: asyncio.sleep",
    "import signal\nsignal.setitimer(signal.ITIMER_REAL, 1)": "tests/unit/test_x.py:2: signal.setitimer",
    "from datetime import datetime\ndatetime.now()": "tests/unit/test_x.py:2: datetime.datetime.now",
    "run([], timeout=299)": "tests/unit/test_x.py:1: timeout=299",
    "process.communicate(timeout=0.5)": "tests/unit/test_x.py:1: timeout=0.5",
    "process.wait(20)": "tests/unit/test_x.py:1: .wait(20)",
    "thread.join(5)": "tests/unit/test_x.py:1: .join(5)",
    "PROGRAM = '''\nimport time\ntime.sleep(3)\n'''": "tests/unit/test_x.py:1: time.sleep",
    "PROGRAM = 'run(x, timeout=20)'": "tests/unit/test_x.py:1: timeout=20",
    "PROGRAM = f'print({x}); time.time()'": "tests/unit/test_x.py:1: time.time",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str, tmp_path: Path) -> None:
    (line,) = checked(tmp_path, text)
    assert line.startswith(f"{REFUSED[text]}: ")
    assert 'or say why not in tests/clocks.toml: "unit/test_x.py' in line


@pytest.mark.parametrize(
    "text",
    [
        "run([], timeout=300)",
        "run([], timeout=None)",
        "run([], timeout=limit)",
        "process.wait()\n', '.join(words)",
        "import time\ntime.strftime('%Y')",
        "time = clock\ntime.sleep(1)",  # not the module
        "def test():\n    '''time.sleep(1) is what it waited for.'''",
        "'''Without time.sleep().'''",
        "print('the time. Sleep.')",
        "import resource\nresource.getrusage(0).ru_maxrss",
    ],
)
def test_passed(text: str, tmp_path: Path) -> None:
    assert checked(tmp_path, text) == []


SLEEPS = "import time\n\nclass Test:\n    def test(self):\n        time.sleep(1)\n\nWAITS = 'time.sleep(1)'\n"


def test_a_place_is_the_outermost_one(tmp_path: Path) -> None:
    first, second = checked(tmp_path, SLEEPS)
    assert '"unit/test_x.py::Test" = ' in first and '"unit/test_x.py::WAITS" = ' in second


def test_a_listed_place_passes(tmp_path: Path) -> None:
    both = '"unit/test_x.py::Test" = "polls"\n"unit/test_x.py::WAITS" = "hangs until it is ended"\n'
    assert checked(tmp_path, SLEEPS, both) == []
    assert checked(tmp_path, SLEEPS, '"unit/test_x.py" = "polls"') == []
    (line,) = checked(tmp_path, SLEEPS, '"unit/test_x.py::Test" = "polls"')
    assert '"unit/test_x.py::WAITS"' in line


def test_an_entry_without_a_reason_or_a_use_is_refused(tmp_path: Path) -> None:
    (line,) = checked(tmp_path, SLEEPS, '"unit/test_x.py" = " "')
    assert line == 'tests/clocks.toml: "unit/test_x.py" has no reason: say why no test depends on the load'
    (line,) = checked(tmp_path, "", '"unit/test_x.py" = "polls"')
    assert line == 'tests/clocks.toml: "unit/test_x.py" is not needed any more: remove the line'


def test_folders(tmp_path: Path) -> None:
    for name in ("waiting.py", "vnpu/distributed/job.py"):
        assert len(checked(tmp_path / name, SLEEPS, name=name)) == 2, name
    for name in ("upstream/run.py", "unit/data/program.py", "vnpu/diagnose/scripts/slow.py"):
        assert checked(tmp_path / name, SLEEPS, name=name) == [], name
