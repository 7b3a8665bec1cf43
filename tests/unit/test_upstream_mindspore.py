"""How tests/upstream judges a file of MindSpore's tests: what its plugin says of a file of ours. Without MindSpore."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

UPSTREAM = Path(__file__).parents[1] / "upstream"
FILE = """
import os, sys, pytest
ours = lambda test: pytest.mark.platform_ascend(pytest.mark.onecard(test))
@ours
def test_passes(): pass
@ours
def test_ge_is_an_operator(): pass
@ours
@pytest.mark.parametrize("mode", ["pynative", "GE", "O2"])
def test_by_mode(mode): assert mode == "pynative"
@ours
def test_lacks(): raise RuntimeError("x\\n[The virtual NPU does not have the legacy operator Pad. This is a gap]")
@ours
def test_says_it_beside():
    print("The virtual NPU does not have the legacy operator Sort.", file=sys.stderr)
    raise RuntimeError("Launch kernel failed")
@ours
def test_wrong(): assert 1 == 2, "one"
@ours
@pytest.mark.skip(reason="theirs")
def test_skips(): pass
@pytest.mark.platform_gpu
@pytest.mark.onecard
def test_of_another_chip(): raise SystemExit
@pytest.mark.platform_ascend
@pytest.mark.allcards
def test_of_many(): raise SystemExit
@ours
def test_ends(): os._exit(7)
"""


def judged(
    folder: Path, wanted: list[str] | None, text: str = FILE, idle: str = ""
) -> tuple[int, list[dict[str, Any]]]:
    (folder / "test_x.py").write_text(text, encoding="utf-8")
    read, write = os.pipe()
    environ = {
        **os.environ,
        "UPSTREAM_ANSWERS": str(write),
        "UPSTREAM_TESTS": json.dumps(wanted),
        "PYTHONPATH": str(UPSTREAM),
        "UPSTREAM_IDLE": idle,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mindspore_judge", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(folder), "-c", os.devnull, str(folder / "test_x.py")]
    result = subprocess.run(command, env=environ, pass_fds=[write], capture_output=True, check=False)
    os.close(write)
    with os.fdopen(read) as lines:
        return result.returncode, [json.loads(line) for line in lines]


def test_each_test_of_the_chip_has_its_verdict(tmp_path: Path) -> None:
    code, said = judged(tmp_path, None)
    assert code == 7 and not any("done" in line for line in said)
    (there,) = (line["tests"] for line in said if "tests" in line)
    assert "test_of_another_chip" not in there and "test_of_many" not in there and len(there) == 10
    found = {line["test"]: (line["status"], line["reason"]) for line in said if "status" in line}
    compiled = ("IMPOSSIBLE", "asks for CANN's graph compiler (GE)")
    wrong = found.pop("test_wrong")
    assert found == {
        "test_passes": ("PASS", ""),
        "test_ge_is_an_operator": ("PASS", ""),
        "test_by_mode[pynative]": ("PASS", ""),
        "test_by_mode[GE]": compiled,
        "test_by_mode[O2]": compiled,
        "test_lacks": ("GAP", "Pad"),
        "test_says_it_beside": ("GAP", "Sort"),
        "test_skips": ("SKIP", "Skipped: theirs"),
    }
    assert wrong[0] == "FAIL" and "AssertionError: one" in wrong[1]
    # The one at which the process has ended was announced.
    assert said[-1] == {"test": "test_ends"}


def test_the_rest_is_run_alone(tmp_path: Path) -> None:
    code, said = judged(tmp_path, ["test_passes"])
    assert code == 0 and said[-1] == {"done": True}
    assert [line["test"] for line in said if "status" in line] == ["test_passes"]


def test_a_file_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    _, said = judged(tmp_path, None, "import a_module_that_nobody_has\n")
    (found,) = (line for line in said if "status" in line)
    assert found["test"] == "(import)" and "a_module_that_nobody_has" in found["reason"]


def test_where_files_share_a_process_tests_have_their_files_name(tmp_path: Path) -> None:
    _, said = judged(tmp_path, ["test_x.py::test_passes"], idle="1")
    assert [line["test"] for line in said if "status" in line] == ["test_x.py::test_passes"]
