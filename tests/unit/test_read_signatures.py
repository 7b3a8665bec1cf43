"""tools/read_signatures.py on a made-up wheel of three functions, and on the installed torch_npu."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import cann_prototypes  # noqa: E402
import read_signatures  # noqa: E402

TENSORS = [["const aclTensor*", "self", "in"], ["aclTensor*", "out", "out"]]
ABS = {"tier": 1, "source": "header", "torch": ["aten::abs"], "params": TENSORS}
FILL = {
    "tier": 2,
    "source": "header",
    "torch": [],
    "params": [["aclTensor*", "selfRef", "inout"], ["aclDataType", "dtype", "in"]],
}
SORT = {"tier": 3, "source": "doc", "torch": [], "params": TENSORS}
TAIL = "uint64_t* workspaceSize, aclOpExecutor** executor"
HEADER = f"""
/* Two phases. */
aclnnStatus aclnnAbsGetWorkspaceSize(const aclTensor *self, // the input
    aclTensor *out, {TAIL});
aclnnStatus aclnnAbs(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnFillGetWorkspaceSize(aclTensor* selfRef, const int64_t dtype, {TAIL});
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A folder torch_npu that asks for Abs, Fill and Sort, and declares the first two."""
    folder = tmp_path / "torch_npu"
    for name in ("lib", "include"):
        (folder / name).mkdir(parents=True)
    ask(folder, "aclnnAbs", "aclnnFill", "aclnnSort")
    (folder / "include/aclnn_made_up.h").write_text(HEADER)
    return folder


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "aclnn"
    folder.mkdir()
    read_signatures.write_table(folder / "signatures.json", {"aclnnAbs": ABS, "aclnnFill": FILL, "aclnnSort": SORT})
    read_signatures.write_table(folder / "signatures_mindspore.json", {})
    (folder / "unexported.toml").write_text('[aclnnNotFound]\nreason = "A helper\'s name."\n')
    return folder


def ask(wheel: Path, *operators: str, others: tuple[str, ...] = ("aclnnNotFound",)) -> None:
    """Write the library: the names between zeros, and around them what a library has besides."""
    names = [*operators, *(f"{name}GetWorkspaceSize" for name in operators), *others]
    noise = b"\x7fELF\xff\xfe\0call aclnnGone failed\0aclnn\0aclnn_small\0aclrtMalloc\0aclnn\xff\xc3Bad\0"
    library = noise + b"\0".join(name.encode() for name in names) + b"\0aclnnCutOff"
    (wheel / "lib/libtorch_npu.so").write_bytes(library)
    (wheel / "lib/libempty.so").write_bytes(b"")


def lines(capsys: pytest.CaptureFixture[str], code: int, wheel: Path, tables: Path, *options: str) -> list[str]:
    kept = tables / "kept.toml"
    if not kept.exists():
        kept.write_text("")
    assert read_signatures.main(["--wheel", str(wheel), *options], tables, kept) == code
    return capsys.readouterr().out.splitlines()


def table(tables: Path) -> dict[str, Any]:
    return read_signatures.read_table(tables / "signatures.json")


def test_same_wheel_has_no_difference(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that torch_npu passes as aclDataType is none."""
    before = (tables / "signatures.json").read_text()
    (summary,) = lines(capsys, 0, wheel, tables)
    assert summary.startswith("2 of 3 rows come from the wheel and agree (it asks for 3 of their names)")
    assert summary.endswith("1 kept (1 from doc); 0 differences")
    lines(capsys, 0, wheel, tables, "--write")
    assert (tables / "signatures.json").read_text() == before


def test_parent_folder_of_torch_npu_is_a_wheel(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, 0, wheel.parent, tables)


def test_added_function(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(wheel, "aclnnAbs", "aclnnFill", "aclnnSort", "aclnnTopk", "aclnnUnknown", others=("aclnnInit",))
    with (wheel / "include/aclnn_made_up.h").open("a") as file:
        file.write(f"aclnnStatus aclnnTopkGetWorkspaceSize(const aclTensor* x, int64_t k, aclTensor* y, {TAIL});")
        file.write("aclnnStatus aclnnInit(const char* path);")
    found = lines(capsys, 1, wheel, tables)
    assert found[:3] == [
        "added: aclnnInit: 1 parameters (aclnn_made_up.h)",
        "added: aclnnTopk: 3 parameters (aclnn_made_up.h)",
        "added: aclnnUnknown: no signature found; no operator? then unexported.toml",
    ]
    assert "note: unexported.toml has aclnnNotFound, for which the wheel does not ask" in found
    lines(capsys, 1, wheel, tables, "--write")  # 1: aclnnUnknown is left
    written = table(tables)
    assert written.keys() == {"aclnnAbs", "aclnnFill", "aclnnInit", "aclnnSort", "aclnnTopk"}
    assert written["aclnnTopk"] == {
        "tier": 3,
        "source": "header",
        "torch": [],
        "params": [["const aclTensor*", "x", "in"], ["int64_t", "k", "in"], ["aclTensor*", "y", "out"]],
    }
    assert written["aclnnInit"]["params"] == [["const char*", "path", "in"]]


def test_changed_parameter(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = wheel / "include/aclnn_made_up.h"
    header.write_text(HEADER.replace("aclTensor *out,", "double alpha, aclTensor *out,"))
    difference, summary = lines(capsys, 1, wheel, tables)
    assert difference == ("parameters: aclnnAbs: number 2 is aclTensor* out here, double alpha there (aclnn_made_up.h)")
    assert summary.startswith("1 of 3 rows")
    lines(capsys, 0, wheel, tables, "--write")
    assert table(tables)["aclnnAbs"] == {**ABS, "params": [TENSORS[0], ["double", "alpha", "in"], TENSORS[1]]}
    lines(capsys, 0, wheel, tables)


def test_parameter_less_at_the_end(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = wheel / "include/aclnn_made_up.h"
    header.write_text(HEADER.replace(", const int64_t dtype", ""))
    difference, _ = lines(capsys, 1, wheel, tables)
    assert difference == "parameters: aclnnFill: 2 here, 1 there (aclnn_made_up.h)"


def test_integer_that_becomes_a_double_differs(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = wheel / "include/aclnn_made_up.h"
    header.write_text(HEADER.replace("const int64_t dtype", "double dtype"))
    difference, _ = lines(capsys, 1, wheel, tables)
    assert "number 2 is aclDataType dtype here, double dtype there" in difference


def test_vanished_function(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(wheel, "aclnnAbs", "aclnnFill")
    difference, summary = lines(capsys, 1, wheel, tables)
    assert difference == "gone: aclnnSort: the wheel does not ask for it"
    assert summary.endswith("0 kept (none); 1 differences")
    lines(capsys, 0, wheel, tables, "--write")
    assert table(tables).keys() == {"aclnnAbs", "aclnnFill"}


def test_direction_differs_unless_kept(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {**ABS, "params": [["const aclTensor*", "self", "inout"], TENSORS[1]]}
    read_signatures.write_table(tables / "signatures.json", {"aclnnAbs": wrong, "aclnnFill": FILL, "aclnnSort": SORT})
    difference, _ = lines(capsys, 1, wheel, tables)
    assert difference == "direction: aclnnAbs: self is inout here, in there (aclnn_made_up.h)"
    (tables / "kept.toml").write_text('[aclnnAbs]\nparameters = ["self"]\nreason = "It is written too."\n')
    lines(capsys, 0, wheel, tables)


def test_row_moves_from_mindspore(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(wheel, "aclnnAbs", "aclnnDiag", "aclnnFill", "aclnnSort")
    diag = {"tier": None, "source": "callsite", "torch": [], "params": TENSORS}
    read_signatures.write_table(tables / "signatures_mindspore.json", {"aclnnDiag": diag, "aclnnExpand": diag})
    assert lines(capsys, 1, wheel, tables)[0].startswith("added: aclnnDiag: signatures_mindspore.json")
    lines(capsys, 0, wheel, tables, "--write")
    assert table(tables)["aclnnDiag"] == {**diag, "tier": 3}
    assert read_signatures.read_table(tables / "signatures_mindspore.json").keys() == {"aclnnExpand"}


def test_garbage_in_headers_is_passed_over(wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    garbage = b"aclnnStatus \xff\xfe aclnnAbsGetWorkspaceSize(\0\0 aclnnStatus aclnnSortGetWorkspaceSize(1 + 2, &x);"
    (wheel / "include/aclnn_a_garbage.h").write_bytes(garbage)
    lines(capsys, 0, wheel, tables)


def test_folder_without_libraries_is_no_wheel(tmp_path: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_signatures.main(["--wheel", str(tmp_path)], tables) == 2
    assert "has no library" in capsys.readouterr().err


def test_header_of_the_sources_precedes_their_page(
    wheel: Path, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = tables.parent / "sources/ops-nn"
    for name in ("docs", "op_api", "tests"):
        (sources / name).mkdir(parents=True)
    declared = f"aclnnStatus aclnnSortGetWorkspaceSize(const aclTensor* self, %s, {TAIL})"
    (sources / "docs/aclnnSort.md").write_text(f"```\n{declared % 'aclTensor* values'}\n```\n")
    (sources / "tests/stub.h").write_text(declared % "bool stub" + ";")
    options = ("--sources", str(sources.parent))
    assert "aclTensor* values there (ops-nn/docs/aclnnSort.md)" in lines(capsys, 1, wheel, tables, *options)[0]
    (sources / "op_api/aclnn_sort.h").write_text(declared % "aclTensor* out" + ";")
    (summary,) = lines(capsys, 0, wheel, tables, *options)
    assert "1 agree with a header of the sources and 0 with a page" in summary


PAGE = """\
## aclnnSortGetWorkspaceSize
| 参数名 | 输入/输出 | 描述 |
|---|---|---|
| self | 输入 | x |
| cache（aclTensor*） | 输入/输出 | x |
<tr><td>values (aclTensor*)</td>
<td>可选输出</td></tr>
- indices（aclTensor*，计算输出）：x

## aclnnSort
| workspace | 输入 | x |
"""


@pytest.mark.parametrize(
    ("place", "parameter", "direction"),
    [
        (0, ("const aclTensor*", "self"), "in"),
        (1, ("const aclTensor*", "cache"), "inout"),
        (2, ("const aclTensor*", "valuesOptional"), "out"),
        (3, ("const aclTensor*", "indices"), "out"),
        (4, ("aclTensor*", "gradRef"), "inout"),
        (5, ("const aclTensorList*", "gradOut"), "out"),
        (6, ("aclTensor*", "y"), "out"),
        (7, ("const aclIntArray*", "out"), "in"),
        (8, ("char*", "layout"), "in"),
        (9, ("int64_t**", "shape"), "out"),
    ],
)
def test_direction_of_a_parameter(tmp_path: Path, place: int, parameter: tuple[str, str], direction: str) -> None:
    (tmp_path / "aclnnSort.md").write_text(PAGE, encoding="utf-8")
    declared = cann_prototypes.Prototypes()
    declared.read_folder(tmp_path)
    assert declared.guess_direction("aclnnSort", place, parameter) == direction


def test_tag_of_a_header_is_read(tmp_path: Path) -> None:
    documented = "/**\n * @param [in] x: x\n * @param [out] y: x\n */\nACLNN_API aclnnStatus aclnnDup" + (
        f"GetWorkspaceSize(const aclTensor* x, const aclTensor* y, {TAIL});"
    )
    (tmp_path / "aclnn_dup.h").write_text(documented)
    declared = cann_prototypes.Prototypes()
    declared.read_folder(tmp_path)
    found = declared.find("aclnnDup")
    assert found is not None
    assert [declared.guess_direction("aclnnDup", i, one) for i, one in enumerate(found.parameters)] == ["in", "out"]


def test_kept_parameters_exist() -> None:
    rows = read_signatures.read_table(read_signatures.TABLES / "signatures.json")
    for name, entry in tomllib.loads(read_signatures.KEPT.read_text(encoding="utf-8")).items():
        assert {*entry["parameters"]} <= {parameter for _, parameter, _ in rows[name]["params"]}, name
        assert entry["reason"].endswith(".")


@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed")
def test_installed_torch_npu_has_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_signatures.main([]) == 0
    summary = capsys.readouterr().out.splitlines()[-1]
    rows = json.loads((read_signatures.TABLES / "signatures.json").read_text(encoding="utf-8"))
    assert f"asks for {len(rows)} of their names" in summary
