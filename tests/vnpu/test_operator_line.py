"""An operator's line: what the macro makes of it, and where the compiler reports a mistake in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import show_operator  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (ROOT / "build/release/compile_commands.json").exists(), reason="needs the folder of `make build`"
)


def show(name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/show_operator.py", name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_show_prints_what_the_compiler_sees() -> None:
    shown = show("aclnnInplaceAtan2")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = (ROOT / "csrc/opapi/elementwise/arithmetic.cpp").read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines, 1) if line.startswith("OP(aclnnInplaceAtan2,"))
    assert f"implemented in csrc/opapi/elementwise/arithmetic.cpp:{first}\n" in shown.stdout
    assert "parameters: aclTensor* selfRef (" in shown.stdout
    assert "checks, from code and page:" in shown.stdout
    assert "selfRef: " in shown.stdout and ", at most 8 dimensions (code)" in shown.stdout
    code = " ".join(shown.stdout.partition("is for the compiler:")[2].split()).replace("( ", "(")
    # Both entry points, the line's own two lines in them, and no other operator.
    assert "aclnnInplaceAtan2GetWorkspaceSize(aclTensor *selfRef, aclTensor *other, uint64_t *workspaceSize" in code
    assert "angle(selfRef, selfRef, other);" in code
    assert "binary(selfRef, selfRef, other," in code
    assert 'launch("aclnnInplaceAtan2", executor, stream);' in code
    assert code.count("extern") == 2


def test_show_knows_what_only_mindspore_asks_for() -> None:
    shown = show("aclnnSelu")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "implemented in csrc/opapi/elementwise/selu.cpp:" in shown.stdout
    assert "checks: not read from CANN's sources" in shown.stdout


def test_show_says_why_there_is_no_line() -> None:
    assert "aclnnDropoutV3Tensor: not exported. No public signature." in show("aclnnDropoutV3Tensor").stdout


def test_show_of_an_unknown_name_says_which_are_near() -> None:
    shown = show("aclnnAtan3")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "aclnnAtan3 is in none of the tables" in shown.stderr
    assert "aclnnAtan2" in shown.stderr


HEAD = """#include "opapi/aclnn/op.h"
#define WRAPPED(NAME, OUT, CHECK, ...) OP(NAME, CHECK; broadcasts(OUT, {&other}), __VA_ARGS__)
"""
RIGHT = """OP(aclnnAtan2, broadcasts(out, {&self, &other}), at::atan2_out(out, self, other))
WRAPPED(aclnnMul, out, dtype(self, kAll), at::mul_out(out, self, other))
"""
WRONG = {
    "OP(aclnnAdd, broadcasts(out, {&self, &other}), at::add_out(out, sefl, other, alpha.get()))": "sefl",
    "OP(aclnnFmodTensor, broadcasts(out, {&self, &other}), at::fmod_out(out, self, other, 3))": "fmod_out",
    "OP(aclnnDiv, broadcasts(out, &self), at::div_out(out, self, other))": "initializer_list",
    "OP(aclnnGcd, brodcasts(out, {&self}), at::gcd_out(out, self, other))": "brodcasts",
    "OP(aclnnErf, same_shape(out, self), out.copy_(self.erff()))": "erff",
    "OP(aclnnExp, same_shape(out, self))": "no kernel",
    "WRAPPED(aclnnMaximum, aut, dtype(self, kAll), at::maximum_out(out, self, other))": "aut",
    "WRAPPED(aclnnMinimum, out, dtype(self, kAlll), at::minimum_out(out, self, other))": "kAlll",
}


def test_a_mistake_in_a_line_is_reported_there(tmp_path: Path) -> None:
    """All in one file, since reading ATen's headers is what takes the time. The lines that are right are not named."""
    path = tmp_path / "family.cpp"
    path.write_text(HEAD + RIGHT + "\n".join(WRONG), encoding="utf-8")
    command = show_operator.compile_command(ROOT / "csrc/opapi/elementwise/arithmetic.cpp")
    command = [*command, "-fsyntax-only", str(path)]
    made = subprocess.run(command, cwd=show_operator.BUILD, capture_output=True, text=True, check=False)
    said = made.stderr.splitlines()
    wrong = (HEAD + RIGHT).count("\n") + 1
    for number, (line, word) in enumerate(WRONG.items(), wrong):
        errors = [text for text in said if text.startswith(f"{path}:{number}:")]
        assert " error: " in errors[0], line
        assert word in errors[0]
        assert any(line in text for text in said)
    first = next(i for i, text in enumerate(said) if "error: " in text)
    assert said[first].startswith(f"{path}:{wrong}:")
    assert first <= 3  # "In file included from", "In lambda function"
    for number in range(HEAD.count("\n") + 1, wrong):
        assert not any(text.startswith(f"{path}:{number}:") for text in said)
