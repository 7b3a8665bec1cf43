"""The derived table of checks (csrc/opapi/aclnn/checks.json) against what people have read in the sources.

`python tools/derive_checks SOURCES` writes the table; TORCHPORT_CANN_SOURCES=SOURCES derives it again here.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from read_by_hand import DTYPES, NUMBERS_READ, READ, SIGNATURES

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/derive_checks"
TABLE: dict[str, Any] = json.loads((ROOT / "csrc/opapi/aclnn/checks.json").read_text(encoding="utf-8"))


def on(parameter: dict[str, Any], chip: str) -> str | None:
    """The dtypes that a row has for a chip."""
    return parameter.get(chip, parameter.get("dtypes"))


def accepts(listed: str | None, word: str) -> bool:
    return listed is None or word in listed.split()


def decisions(table: dict[str, Any], chip: str) -> Iterator[tuple[str, bool, bool]]:
    """(what, derived, read) for every parameter and dtype; an unlisted parameter accepts every dtype."""
    for name, row in READ.items():
        for parameter, read in row["parameters"].items():
            derived = table[name]["parameters"].get(parameter, {})
            words = sorted({*DTYPES, *(read[chip] or "").split(), *(on(derived, chip) or "").split()})
            for word in words:
                yield (
                    f"{name} {parameter} {word} on {chip}",
                    accepts(on(derived, chip), word),
                    accepts(read[chip], word),
                )


def agreement(table: dict[str, Any], chip: str) -> tuple[float, list[str]]:
    """The part of the decisions that are as read, and the others."""
    rows = list(decisions(table, chip))
    wrong = [f"{what}: derived {derived}, read {read}" for what, derived, read in rows if derived != read]
    return 1 - len(wrong) / len(rows), wrong


def max_rank(parameter: dict[str, Any], chip: str = "910B") -> int | None:
    value = parameter.get("max_rank")
    return value[chip] if isinstance(value, dict) else value


def wrong_ranks(table: dict[str, Any]) -> list[str]:
    """Highest ranks that are not as read; what follows from the rank of another tensor may be told or not."""
    return [
        f"{name} {parameter}: derived {derived}, read {read['max_rank']}"
        for name, row in READ.items()
        for parameter, read in row["parameters"].items()
        if (derived := max_rank(table[name]["parameters"].get(parameter, {}))) != read["max_rank"]
        and (read["max_rank"] is not None or derived != read.get("implied_max_rank"))
    ]


def test_there_is_a_row_per_signature_with_its_source() -> None:
    assert TABLE.keys() == SIGNATURES.keys()
    for name, row in TABLE.items():
        assert row["evidence"] in (None, "code", "page", "code+page", "definition"), name
        assert (row["source"] is None) == (row["evidence"] in (None, "page")), name
        assert row["parameters"].keys() <= {parameter for _, parameter, _ in SIGNATURES[name]["params"] or ()}


# What is measured: not a decision less.
@pytest.mark.parametrize(("chip", "least"), [("910B", 0.999), ("910A", 1.0), ("310P", 0.999)])
def test_dtypes_are_those_read_by_hand(chip: str, least: float) -> None:
    part, wrong = agreement(TABLE, chip)
    print(f"{chip}: {part:.2%} of the decisions agree", *wrong, sep="\n")
    assert part >= least, "\n".join(wrong)


def test_ranks_are_those_read_by_hand() -> None:
    # Its limit is one of the storage's rank, which the tool does not translate into one of the view's.
    assert wrong_ranks(TABLE) == ["aclnnFusedQuantMatmulWeightNz x2: derived None, read 6"]


def wrong_numbers(table: dict[str, Any]) -> list[str]:
    """Ranges of numbers that are not as read, on a 910B."""
    found = []
    for name, row in NUMBERS_READ.items():
        for parameter, read in row.items():
            derived = table[name].get("attributes", {}).get(parameter)
            derived = derived["910B"] if isinstance(derived, dict) else derived
            if derived != read:
                found.append(f"{name} {parameter}: derived {derived}, read {read}")
    return found


def test_numbers_are_those_read_by_hand() -> None:
    assert sum(read is not None for row in NUMBERS_READ.values() for read in row.values()) >= 14
    assert wrong_numbers(TABLE) == []


def test_a_wrong_row_is_noticed() -> None:
    """The negative control: one dtype more, one rank less, and a row that knows nothing."""
    planted = copy.deepcopy(TABLE)
    planted["aclnnAdd"]["parameters"]["self"]["dtypes"] += " u16"
    planted["aclnnAdd"]["parameters"]["other"]["max_rank"] = 7
    assert "aclnnAdd self u16 on 910B: derived True, read False" in agreement(planted, "910B")[1]
    assert "aclnnAdd other: derived 7, read 8" in set(wrong_ranks(planted)) - set(wrong_ranks(TABLE))
    planted["aclnnMv"]["attributes"]["cubeMathType"] = "0..4"
    planted["aclnnGlu"]["attributes"] = {"dim": "0.."}
    assert len(wrong_numbers(planted)) == 2
    for name in READ:
        planted[name]["parameters"] = {}
    assert agreement(planted, "910B")[0] < 0.8


def tool(name: str) -> Any:
    """A module of the tool, which runs as a folder and is no package."""
    if str(TOOL) not in sys.path:
        sys.path.insert(0, str(TOOL))
    return importlib.import_module(name)


def walk(tmp_path: Path, body: str, before: str = "", chip: str = "910B", *, telling: bool = False) -> Any:
    """The outcome of a first phase with this body."""
    folder = tmp_path / "ops-math/math/x/op_api"
    folder.mkdir(parents=True, exist_ok=True)
    text = f"""
        #define REFUSE_OTHERS(tensor, list, result) \\
            if (!CheckType((tensor)->GetDataType(), list)) {{ OP_LOGE(1, "no: %s", #tensor); result; }}
        #define EITHER_LIST(tensor, one, other, result) \\
            do {{ REFUSE_OTHERS(tensor, IsNew() ? one : other, result) }} while (0)
        static const std::initializer_list<op::DataType> HALVES = {{op::DataType::DT_FLOAT16, op::DataType::DT_BF16}};
        static const std::initializer_list<op::DataType> HALF = {{DataType::DT_FLOAT16}};
        constexpr size_t MOST = 8;  // "{{"
        static bool IsNew() {{ return GetCurrentPlatformInfo().GetSocVersion() >= SocVersion::ASCEND910B &&
                                     GetCurrentPlatformInfo().GetSocVersion() <= SocVersion::ASCEND910E; }}
        {before}
        aclnnStatus aclnnXGetWorkspaceSize(const aclTensor *self, bool flag, int64_t mode, double part,
                                           aclTensor *out, uint64_t *size, aclOpExecutor **executor) {{
            {body}
            return ACLNN_SUCCESS;
        }}"""
    (folder / "aclnn_x.cpp").write_text(text, encoding="utf-8")
    unit = tool("sources").Sources(tmp_path).unit("ops-math/math/x/op_api/aclnn_x.cpp")
    function = unit.functions("aclnnXGetWorkspaceSize")[0]
    walked = tool("interpreter").outcome(unit, function, chip, telling_numbers=telling)
    assert walked.complete
    return walked


def derive(tmp_path: Path, body: str, before: str = "", chip: str = "910B") -> dict[str, Any]:
    """The limits of self and out."""
    found: dict[str, Any] = tool("rows").limits(walk(tmp_path, body, before, chip), ["self", "out"])
    return found


INVALID = "return ACLNN_ERR_PARAM_INVALID;"
REFUSES = {
    "a macro with an action": ("", "REFUSE_OTHERS(self, HALVES, return ACLNN_ERR_PARAM_INVALID)"),
    "a macro with two lists": ("", "EITHER_LIST(self, HALVES, HALF, return ACLNN_ERR_PARAM_INVALID);"),
    "a choice by the chip": (
        "",
        f"auto list = IsNew() ? HALVES : HALF; if (!CheckType(self->GetDataType(), list)) {{ {INVALID} }}",
    ),
    "if and else by the chip": (
        "",
        f"if (IsNew()) {{ REFUSE_OTHERS(self, HALVES, {INVALID}) }} else {{ REFUSE_OTHERS(self, HALF, {INVALID}) }}",
    ),
    "a function that returns a list": (
        """static const std::initializer_list<DataType> &List() {
               switch (GetCurrentPlatformInfo().GetCurNpuArch()) {
                   case NpuArch::DAV_2201: case NpuArch::DAV_3510: { return HALVES; }
                   default: return HALF;
               } }""",
        f"REFUSE_OTHERS(self, List(), {INVALID})",
    ),
    "functions in functions": (
        """static bool Dtypes(const aclTensor *t) { REFUSE_OTHERS(t, HALVES, return false) return true; }
           static aclnnStatus Check(const aclTensor *a) { if (!Dtypes(a)) return ACLNN_ERR_PARAM_INVALID;
                                                          return ACLNN_SUCCESS; }""",
        "auto ret = Check(self); if (ret != ACLNN_SUCCESS) { return ret; }",
    ),
    "a comparison of each dtype": (
        "",
        f"auto d = self->GetDataType(); if (d != DataType::DT_FLOAT16 && d != DataType::DT_BF16) {INVALID}",
    ),
    "the dtype of another that is checked later": (
        "",
        f"if (self->GetDataType() != out->GetDataType()) {INVALID} REFUSE_OTHERS(out, HALVES, {INVALID})",
    ),
    "a check where the flag is set": ("", f"if (flag) {{ REFUSE_OTHERS(self, HALVES, {INVALID}) }}"),
    "a check where it is not null": ("", f"if (self != nullptr) {{ REFUSE_OTHERS(self, HALVES, {INVALID}) }}"),
    "a field of a structure": (
        "struct Given { const aclTensor *x; aclTensor *y; };",
        f"Given given = {{self, out}}; REFUSE_OTHERS(given.x, HALVES, {INVALID})",
    ),
    "a parameter whose type has a comma": (
        """static bool Dtypes(const std::map<int64_t, std::string> &names, const aclTensor *t) {
               REFUSE_OTHERS(t, HALVES, return false) return true; }""",
        f"if (!Dtypes(NAMES, self)) {{ {INVALID} }}",
    ),
    "a pointer that a function changes": (
        "static void Ready(const aclTensor *&t) { t = l0op::Contiguous(t, nullptr); }",
        f"Ready(self); REFUSE_OTHERS(self, HALVES, {INVALID})",
    ),
    "a checker with a method": (
        """class Checker { public: explicit Checker(const aclTensor *t) : t_(t) {}
               bool Ok() const { return std::find(HALVES.begin(), HALVES.end(), t_->GetDataType()) != HALVES.end(); }
               private: const aclTensor *t_; };""",
        f"Checker checker(self); if (!checker.Ok()) {{ {INVALID} }}",
    ),
}
REFUSES_NOTHING = {
    "no check": ("", ""),
    "a check of another chip": (
        "",
        f"if (GetCurrentPlatformInfo().GetCurNpuArch() == NpuArch::DAV_3510) {{ REFUSE_OTHERS(self, HALF, {INVALID}) }}",
    ),
    "a check after the return": ("", f"return ACLNN_SUCCESS; REFUSE_OTHERS(self, HALF, {INVALID})"),
    "a function that is not called": (
        "static bool Dtypes(const aclTensor *t) { REFUSE_OTHERS(t, HALF, return false) return true; }",
        "",
    ),
    "a comment": ("", f"// REFUSE_OTHERS(self, HALF, {INVALID})\n /* REFUSE_OTHERS(self, HALF, {INVALID}) */"),
    "a branch that chooses a kernel": (
        "",
        "int way = 0; if (CheckType(self->GetDataType(), HALF)) { way = 1; } else { way = 2; }",
    ),
    "a predicate that returns false": (
        "static bool Fast(const aclTensor *t) { REFUSE_OTHERS(t, HALF, return false) return true; }",
        "if (Fast(self)) { return ACLNN_SUCCESS; }",
    ),
    "a check of another tensor": ("", f"REFUSE_OTHERS(out, HALVES, {INVALID})"),
    "a comparison with what a loop counts": (
        "",
        f"std::vector<int> seen; for (int i = 0; i < 3; i++) {{ seen.push_back(i); }}"
        f"if (self->GetViewShape().GetDimNum() != seen.size()) {{ {INVALID} }}",
    ),
    "a check of a tensor in its place": ("", f"aclTensor *self = out; REFUSE_OTHERS(self, HALF, {INVALID})"),
    "a check of an empty tensor": ("", f"if (self->IsEmpty()) {{ REFUSE_OTHERS(self, HALF, {INVALID}) }}"),
    "the dtype after a cast": (
        "",
        f"self = l0op::Cast(self, DataType::DT_BF16, *executor); REFUSE_OTHERS(self, HALVES, {INVALID})",
    ),
    "a refusal of two together": (
        "",
        f"auto bad = DataType::DT_BOOL; if (self->GetDataType() == bad && out->GetDataType() == bad) {{ {INVALID} }}"
        f"if (out->GetDataType() == bad && self->GetDataType() == bad) {{ {INVALID} }}",
    ),
    "a refusal by the flag": ("", f"if (self->GetDataType() == DataType::DT_INT8 && flag) {INVALID}"),
    "a success written as a number": ("", "int ret = 0; return ret;"),
    "a message only": ("", 'if (!CheckType(self->GetDataType(), HALF)) { OP_LOGW("slow"); }'),
}


@pytest.mark.parametrize("name", REFUSES)
def test_what_is_checked_is_found(name: str, tmp_path: Path) -> None:
    before, body = REFUSES[name]
    assert derive(tmp_path, body, before)["self"].dtypes == "f16 bf16"


@pytest.mark.parametrize("name", REFUSES_NOTHING)
def test_what_is_not_checked_is_not_found(name: str, tmp_path: Path) -> None:
    before, body = REFUSES_NOTHING[name]
    found = derive(tmp_path, body, before)["self"]
    assert (found.dtypes, found.max_rank, found.except_for) == (None, None, "")


NUMBERS = {
    "if (mode < 0 || mode > 2) return ACLNN_ERR_PARAM_INVALID;": {"mode": "0..2"},
    "if (mode != -1 && mode != 3) return ACLNN_ERR_PARAM_INVALID;": {"mode": "-1 3"},
    "if (!(mode >= 1)) return ACLNN_ERR_PARAM_INVALID;": {"mode": "1.."},
    "switch (mode) { case 0: case 1: break; default: return ACLNN_ERR_PARAM_INVALID; }": {"mode": "0..1"},
    "if (mode - 1 > 3) return ACLNN_ERR_PARAM_INVALID;": {"mode": "..4"},
    "if (mode == 5) return ACLNN_ERR_PARAM_INVALID;": {"mode": "..4 6.."},
    "if (part < 0.0 || part > 1.0f) return ACLNN_ERR_PARAM_INVALID;": {"part": "0..1"},
    "if (part <= 0) return ACLNN_ERR_PARAM_INVALID;": {"part": "0<.."},
    "if (part != -1.0f && part < 0) return ACLNN_ERR_PARAM_INVALID;": {"part": "-1 0.."},
    "if (mode < 0 || mode > 10240) return ACLNN_ERR_PARAM_INVALID;": {"mode": "0.."},
    # What does not refuse, or not whatever else is given.
    "if (mode < 0) { mode += 4; }": {},
    'if (mode > 2) { OP_LOGW("slow"); }': {},
    "if (flag && mode > 2) return ACLNN_ERR_PARAM_INVALID;": {},
    "if (mode > 10240) return ACLNN_ERR_PARAM_INVALID;": {},
    "if (mode == 777) return ACLNN_ERR_PARAM_INVALID;": {},
    "if (mode >= self->GetViewShape().GetDimNum()) return ACLNN_ERR_PARAM_INVALID;": {},
    "if (mode % 16 != 0) return ACLNN_ERR_PARAM_INVALID;": {},
    "mode = 7; if (mode > 2) return ACLNN_ERR_PARAM_INVALID;": {},
    "if (part > 0.5) return ACLNN_ERR_PARAM_INVALID;": {},
    "if (self->GetDataType() == DataType::DT_INT8 && mode > 2) return ACLNN_ERR_PARAM_INVALID;": {},
}


@pytest.mark.parametrize("body", NUMBERS)
def test_numbers_are_limited_as_the_body_says(body: str, tmp_path: Path) -> None:
    kinds = {"self": "aclTensor", "mode": "int64_t", "part": "double", "size": "uint64_t"}
    assert tool("rows").numbers(walk(tmp_path, body, telling=True), kinds) == NUMBERS[body]


@pytest.mark.parametrize(("chip", "dtypes"), [("910B", "f16 bf16"), ("910A", "f16"), ("310P", "f16")])
def test_a_chip_has_its_own_list(chip: str, dtypes: str, tmp_path: Path) -> None:
    for name in (
        "a macro with two lists",
        "a choice by the chip",
        "if and else by the chip",
        "a function that returns a list",
    ):
        before, body = REFUSES[name]
        assert derive(tmp_path, body, before, chip)["self"].dtypes == dtypes, name


def test_a_refused_chip_takes_nothing(tmp_path: Path) -> None:
    assert derive(tmp_path, f"if (!IsNew()) {{ {INVALID} }}", chip="310P")["self"].dtypes == ""
    assert derive(tmp_path, f"if (!IsNew()) {{ {INVALID} }}")["self"].dtypes is None


@pytest.mark.parametrize(
    ("check", "rank"),
    [
        (f"if (self->GetViewShape().GetDimNum() > MOST) {INVALID}", 8),
        (f"auto n = self->GetViewShape().GetDimNum(); if (n != 3 && n != MOST - 4) {INVALID}", 4),
        (f"if (out->GetViewShape().GetDimNum() > MOST) {INVALID}", None),
        (f"if (self->GetViewShape().GetDimNum() < 2) {INVALID}", None),
        ("if (self->GetViewShape().GetDimNum() > MOST) { out = nullptr; }", None),
    ],
)
def test_ranks_are_found(check: str, rank: int | None, tmp_path: Path) -> None:
    assert derive(tmp_path, check)["self"].max_rank == rank


@pytest.mark.skipif("TORCHPORT_CANN_SOURCES" not in os.environ, reason="TORCHPORT_CANN_SOURCES names no sources")
def test_the_table_is_what_the_sources_give() -> None:
    sys.setrecursionlimit(20_000)
    sources = tool("sources").Sources(Path(os.environ["TORCHPORT_CANN_SOURCES"]))
    derived = tool("table").table(sources, SIGNATURES, READ)
    assert derived == {name: TABLE[name] for name in READ}
