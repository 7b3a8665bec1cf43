"""Which tests `make test` and `make check` run: the tiers of the Makefile, of pyproject.toml and of tests/quick.txt."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import choose  # noqa: E402
import tiers  # noqa: E402

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
MARKERS = {line.partition(":")[0]: line for line in OPTIONS["markers"]}


def planned(*words: str) -> str:
    """The commands that make would run."""
    ended = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout


def test_the_quick_tests_are_listed() -> None:
    listed = tiers.LISTED.read_text(encoding="utf-8").splitlines()
    assert tiers.quick() == listed, "python tests/tiers.py, and look at the difference"


def test_make_test_runs_the_listed_files() -> None:
    words = (planned("quick-python") + planned("quick-npu")).split()
    given = [word for word in words if word.startswith("tests/")]
    files = {line.partition("::")[0] for line in tiers.LISTED.read_text(encoding="utf-8").splitlines()}
    missing = {file for file in files if not any(f"{file}::".startswith((one, f"{one}::")) for one in given)}
    assert missing == {Path(tiers.DEMO.partition("::")[0]).as_posix()}
    assert tiers.DEMO in given


def test_make_demo_gives_the_verdict_before_all_is_compiled() -> None:
    lines = planned("demo", "LIB=no/such/folder").splitlines()
    first, port, rest = (
        next(number for number, line in enumerate(lines) if words in line)
        for words in ("--target port_libraries", "torchport port", "--component Unspecified")
    )
    assert first < rest < port
    assert any("--build build/release" in line and "--target" not in line for line in lines[port:])


def test_make_check_runs_what_make_test_leaves_out_of_tests_unit() -> None:
    (left_out,) = (line for line in planned("quick-python").splitlines() if "pytest -q tests/unit" in line)
    (run,) = (line for line in planned("check").splitlines() if '-m "processes and ' in line)
    assert '-m "not processes and ' in left_out
    marked = {path for path in (ROOT / "tests/unit").glob("test_*.py") if "mark.processes" in path.read_text("utf-8")}
    assert marked <= {ROOT / word for word in run.split()}


def test_make_check_runs_the_others() -> None:
    assert "check: test " in MAKEFILE
    others = next(line for line in planned("check").splitlines() if "--ignore tests/vnpu/ops" in line)
    assert f"--deselect {tiers.DEMO} " in others
    expression = re.search(r'-m "not device and (not \(.*?\))"', others)
    assert expression
    assert " ".join(expression[1].split()) in OPTIONS["addopts"]


def test_campaigns_are_left_out_and_have_their_target() -> None:
    left_out = re.search(r"not \((.*)\)", OPTIONS["addopts"])
    assert left_out
    assert set(left_out[1].split(" or ")) == MARKERS.keys() - {"device", "processes"}
    for marker in MARKERS.keys() - {"device"}:
        target = re.search(r"\(`make ([a-z-]+)`\)$", MARKERS[marker])
        assert target and re.search(rf"^{target[1]}\b.*:", MAKEFILE, re.MULTILINE), marker


def test_no_marker_is_idle() -> None:
    used = {
        mark for path in (ROOT / "tests").rglob("*.py") for mark in re.findall(r"mark\.(\w+)", path.read_text("utf-8"))
    }
    assert MARKERS.keys() - used == set()


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("tests/unit/test_tiers.py", {"tests/unit/test_tiers.py"}),
        ("csrc/opapi/index/sort.cpp", {"tests/vnpu/ops/index/test_sort.py"}),
        ("csrc/opapi/loss/pointwise.cpp", {"tests/vnpu/ops/loss"}),
        ("csrc/opapi/aclnn/op.h", {"tests/vnpu/ops"}),
        ("csrc/opapi/aclnn/work.toml", {"tests/vnpu/ops/test_counted_work.py"}),
        ("src/torchport/rules/fresh.py", {"tests/unit/test_rules.py", "tests/unit/test_formats.py"}),
        ("src/torchport/rules/stops/fresh.py", {"tests/unit/test_stops.py"}),
        ("src/torchport/knowledge/errors/fresh.toml", {"tests/unit/test_error_rows.py"}),
        ("src/torchport/cli/fresh.py", {"tests/unit/test_cli.py"}),
        ("csrc/device/stream.cpp", {"tests/vnpu/test_stream.py"}),
        ("src/torchport/source/edits.py", {"tests/unit/test_distributed.py"}),
        ("docs/port.md", set()),
    ],
)
def test_a_changed_file_chooses_its_tests(source: str, tests: set[str]) -> None:
    chosen = {str(path.relative_to(ROOT)) for path in choose.by_source(Path(source))}
    assert tests <= chosen
    assert bool(tests) == bool(chosen)


@pytest.mark.parametrize(
    ("changed", "status"), [([], 0), (["docs/port.md"], 0), (["examples/a.cfg", "docs/port.md"], 2)]
)
def test_a_change_that_chooses_no_test_is_said(
    changed: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choose, "changed", lambda: [Path(each) for each in changed])
    assert choose.main(["--changed"]) == status
    assert ("Nothing has changed" if not changed else "No test is named after") in capsys.readouterr().err


def test_names_choose_folders_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert choose.main(["port", "tiers"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert {"tests/vnpu/port", "tests/unit/test_tiers.py"} <= set(printed)
    assert not any(line.startswith("tests/vnpu/port/") for line in printed)


def test_a_name_without_a_test_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert choose.main(["nosuchthing"]) == 2
    assert "'nosuchthing'" in capsys.readouterr().err
