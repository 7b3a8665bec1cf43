"""The mutation check: what it changes in C++, and that its last run keeps the promise made of it."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "mutation"
sys.path.insert(0, str(FOLDER))

import build  # noqa: E402
import mutants  # noqa: E402

FAMILY = """
namespace {

void check(const Operand &out, int64_t dim) {
    if (dim < 0) fail("parameter dim is {}", dim);
}

void scaled(at::Tensor &out, const at::Tensor &self, double factor, bool keep) {
    if (self.numel() == 0) return;
    const at::Tensor sum = at::sum(self, 1, keep);  // one, two
    if (factor < 0) fail("parameter factor is {}", factor);
    out.copy_(sum.masked_fill(sum > 3, 0) * factor);
}

}  // namespace

#define SCALED(NAME, CHECK, ...) OP(NAME, CHECK(out, 1 + 1), __VA_ARGS__)

SCALED(aclnnScaled, check, scaled(out, self, alpha, keepDim))
OP(aclnnSub, check(out, 2), at::sub_out(out, self, other, alpha))
RANKS_OP(aclnnMul, check(out, 2), at::mul_out(out, self, alpha))
MAX_WORKSPACE(aclnnMulGetMaxWorkspaceSize, check(out, 2))
"""
HEADER = """
#define RANKS_OP(NAME, CHECK, ...) \\
    OP(NAME, CHECK, __VA_ARGS__)
#define MAX_WORKSPACE(NAME, CHECK) \\
    OP_EXPORT int NAME() { CHECK; return 0; }
"""
SIGNATURES = {
    "aclnnScaled": {"params": [["double", "alpha", 0], ["bool", "keepDim", 0], ["const aclTensor*", "self", 0]]},
    "aclnnSub": {"params": [["const aclScalar*", "alpha", 0]]},
    "aclnnMul": {"params": [["const aclScalar*", "alpha", 0]]},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[mutants.Mutant]:
    folder = tmp_path_factory.mktemp("opapi")
    (folder / "aclnn").mkdir()
    (folder / "family").mkdir()
    (folder / "family/file.cpp").write_text(FAMILY, encoding="utf-8")
    (folder / "family/macros.h").write_text(HEADER, encoding="utf-8")
    (folder / "aclnn/check.cpp").write_text("void same(int a) { a = a + 1; }\n", encoding="utf-8")
    of_mindspore = {"aclnnMul": SIGNATURES["aclnnMul"]}
    of_torch_npu = {name: row for name, row in SIGNATURES.items() if name not in of_mindspore}
    for file, rows in (("signatures.json", of_torch_npu), ("signatures_mindspore.json", of_mindspore)):
        (folder / "aclnn" / file).write_text(json.dumps(rows), encoding="utf-8")
    everything = mutants.candidates(folder)
    assert set(everything) == {"family/file.cpp"}
    return everything["family/file.cpp"]


@pytest.mark.parametrize(
    ("operator", "original", "mutated"),
    [
        ("swap arguments", "at::sub_out(out, self, other, alpha)", "at::sub_out(out, other, self, alpha)"),
        ("drop argument", "at::sub_out(out, self, other, alpha)", "at::sub_out(out, self, other)"),
        ("other function", "at::sub_out(out, self, other, alpha)", "at::add_out(out, self, other, alpha)"),
        ("other function", "at::sum(self, 1, keep)", "at::mean(self, 1, keep)"),
        ("ignore number", "alpha", "at::Scalar(1)"),
        ("ignore number", "factor", "1"),
        ("flip boolean", "keepDim", "!keepDim"),
        ("flip boolean", "keep", "!keep"),
        ("wrong constant", "3", "4"),
        ("negate condition", "self.numel() == 0", "!(self.numel() == 0)"),
        ("other comparison", "sum > 3", "sum >= 3"),
        ("other arithmetic", "sum.masked_fill(sum > 3, 0) * factor", "sum.masked_fill(sum > 3, 0) / factor"),
        ("drop call", "sum.masked_fill(sum > 3, 0)", "at::Tensor(sum)"),
        ("drop statement", "out.copy_(sum.masked_fill(sum > 3, 0) * factor)", ""),
    ],
)
def test_kernels_are_changed(found: list[mutants.Mutant], operator: str, original: str, mutated: str) -> None:
    assert (operator, original, mutated) in {
        (mutant.change.operator, mutant.change.original, mutant.change.mutated) for mutant in found
    }


def test_first_phases_and_messages_are_not_changed(found: list[mutants.Mutant]) -> None:
    assert {mutant.function for mutant in found} == {"aclnnScaled", "aclnnSub", "aclnnMul", "scaled"}
    assert [mutant for mutant in found if mutant.change.original in {"2", "dim < 0", "factor < 0"}] == []


def test_all_mutants_stand_in_one_text_each_in_its_line(found: list[mutants.Mutant]) -> None:
    chosen = dict(enumerate(mutants.chosen(found, 1, 100), 1))
    text, lines = mutants.rewritten(FAMILY, chosen)
    assert len(chosen) >= 5 and set(lines.values()) == set(chosen)
    for line, number in lines.items():
        assert text.splitlines()[line - 1].count(f"::torchport::mutant({number})") == 1
    assert len(text) > len(FAMILY) and "// one, two" in text


def test_choice_depends_on_the_seed_and_not_on_other_lines(found: list[mutants.Mutant]) -> None:
    first = mutants.chosen(found, 1, 3)
    assert [m.key for m in first] == [m.key for m in mutants.chosen(found[::-1], 1, 3)]
    assert len({tuple(m.key for m in mutants.chosen(found, seed, 3)) for seed in range(5)}) > 1


def test_last_run_killed_97_percent() -> None:
    status = json.loads((FOLDER / "status.json").read_text(encoding="utf-8"))
    assert status["mutants"] >= 100
    assert status["killed"] >= 0.97 * status["mutants"]
    assert status["killed"] + len(status["survivors"]) == status["mutants"]
    assert set(status["survivors"].values()) <= {"survived", "not reached"}
    for table in ("by_operator", "by_file"):
        assert sum(sum(row.values()) for row in status[table].values()) == status["mutants"]
    # Few: what the tests do not see has to be proven the same, one by one.
    reasons = tomllib.loads((FOLDER / "equivalent.toml").read_text(encoding="utf-8"))["row"]
    assert status["equivalent"] <= len(reasons) <= 0.1 * status["mutants"]
    assert all(len(row["reason"]) > 20 for row in reasons)


PLACES = {("optimizer/foreach.cpp", 34): 1, ("optimizer/foreach.cpp", 254): 2, ("matmul/matmul.cpp", 254): 3}


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("/x/opapi/optimizer/foreach.cpp:34:9: error: no", {1}),
        ("/x/opapi/optimizer/foreach.cpp:40:9: error: no\n | (::torchport::mutant(7) ? a : b)", {7}),
        # An argument of a macro: its own line is in no message of GCC 12.
        (
            "/x/opapi/optimizer/foreach.cpp:248:14: error: no matching function\n"
            "/x/opapi/optimizer/foreach.cpp:253:1: note: in expansion of macro\n"
            "/x/opapi/optimizer/foreach.cpp:255:21: error: 's' was not declared",
            {2},
        ),
        ("/x/opapi/optimizer/foreach.cpp:100:1: error: no", set()),
        ("/x/opapi/optimizer/adam.cpp:254:1: error: no", set()),
    ],
)
def test_what_does_not_compile_is_blamed(said: str, numbers: set[int]) -> None:
    assert build.blamed(said, PLACES) == numbers
