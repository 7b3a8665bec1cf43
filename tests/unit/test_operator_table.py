"""generate.py: a line of an operator that fits no table is reported as a compiler reports an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

OPAPI = Path(__file__).parents[2] / "csrc/opapi"
TABLES = (
    "signatures.json",
    "signatures_mindspore.json",
    "checks.json",
    "corrections.toml",
    "engines.json",
    "unexported.toml",
    "elsewhere.toml",
    "work.toml",
    "check.h",  # the words of checks
)


def generate(source: Path, work: str | None = None) -> tuple[int, str]:
    """Exit code and stderr for a tree with the real tables, or with another work.toml, and one family."""
    (source / "aclnn").mkdir(parents=True)
    (source / "generated").mkdir()
    for table in TABLES:
        shutil.copy(OPAPI / "aclnn" / table, source / "aclnn")
    if work is not None:
        (source / "aclnn/work.toml").write_text(work, encoding="utf-8")
    command = [sys.executable, OPAPI / "aclnn/generate.py", source, source / "generated"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    return made.returncode, made.stderr


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (
            "OP(aclnnAtan22, check(out), run(out))",
            "aclnnAtan22 has no signature in signatures.json; did you mean aclnnAtan2",
        ),
        ("OP(aclnnDropoutV3Tensor, check(out), run(out))", "aclnnDropoutV3Tensor "),
        ("OP(aclnnCIoU, check(out), run(out))", "aclnnCIoU is listed in elsewhere.toml"),
        ("OP(aclnnAtan2, dtype(self, kAll), same_shape(out, self), run(out))", "aclnnAtan2: same_shape stands behind"),
        ("BINARY(aclnnAdd, kAll, run(out))", "aclnnAdd stands in {source}/family/first.cpp:1 already"),
    ],
    ids=["unknown", "left out", "of other chips", "two checks", "twice"],
)
def test_a_line_that_fits_no_table(line: str, error: str, tmp_path: Path) -> None:
    source = tmp_path / "opapi"
    family = source / "family"
    family.mkdir(parents=True)
    (family / "first.cpp").write_text("OP(aclnnAdd, check(out), run(out))\n", encoding="utf-8")
    (family / "second.cpp").write_text(f"// Comment\n\n{line}\n", encoding="utf-8")
    code, said = generate(source)
    assert code == 1
    assert said.startswith(f"{family}/second.cpp:3: error: {error.format(source=source)}")
    assert said.count("\n") == 1


def test_lines_that_fit(tmp_path: Path) -> None:
    source = tmp_path / "opapi"
    (source / "family").mkdir(parents=True)
    (source / "family/first.cpp").write_text("OP(aclnnAdd, check(out), run(out))\n", encoding="utf-8")
    assert generate(source) == (0, "")
    gaps = (source / "generated/gaps.cpp").read_text(encoding="utf-8")
    assert "GAP(aclnnSub)" in gaps and "GAP(aclnnAdd)" not in gaps
    assert 'ELSEWHERE(aclnnCIoU, "Ascend950", 361001)' in gaps and "GAP(aclnnCIoU)" not in gaps


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("OP(aclnnAdd, check(out), run(out))", "aclnnAdd"),
        ("LEGACY(Abs, check(out), run(out))", "Abs"),
        ("#define SINE(NAME, FUNCTION) LEGACY(NAME, check(out), FUNCTION(in[0]))\nSINE(Abs, at::abs)", "Abs"),
        ("#define SINE(NAME) \\\n    LEGACY(Cust##NAME, check(out), run(out))\nSINE(Gcd)", "CustGcd"),
    ],
)
def test_an_operator_without_a_class_of_work_is_refused(line: str, name: str, tmp_path: Path) -> None:
    source = tmp_path / "opapi"
    (source / "family").mkdir(parents=True)
    (source / "family/first.cpp").write_text(line + "\n", encoding="utf-8")
    table = (OPAPI / "aclnn/work.toml").read_text(encoding="utf-8")
    assert generate(source, table) == (0, "")
    shutil.rmtree(source / "aclnn")
    shutil.rmtree(source / "generated")
    code, said = generate(source, table.replace(f'"{name}",', ""))
    assert code == 1
    assert f"error: {name} is in no list of csrc/opapi/aclnn/work.toml" in said


def test_no_operator_is_in_two_lists_of_work(tmp_path: Path) -> None:
    table = (OPAPI / "aclnn/work.toml").read_text(encoding="utf-8")
    code, said = generate(tmp_path / "opapi", table.replace("Pool = [", 'Pool = [\n    "aclnnAdd",'))
    assert (code, said) == (1, "work.toml: aclnnAdd stands in Pool and in Elements\n")


def test_each_list_of_work_has_operators_with_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(OPAPI / "aclnn"))
    import generate as generator

    listed = [
        name for names in tomllib.loads((OPAPI / "aclnn/work.toml").read_text("utf-8")).values() for name in names
    ]
    assert sorted(listed) == sorted({**generator.implemented(OPAPI), **generator.implemented_aclops(OPAPI)})
