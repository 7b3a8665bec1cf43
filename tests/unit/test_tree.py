"""The tree keeps its promises: size budget, names, no leftovers, versions stated once."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from torchport.vnpu import wheels
from torchport.vnpu.chips import load_chips
from torchport.vnpu.variables import VARIABLES

ROOT = Path(__file__).parents[2]
OPAPI, OPERATOR_TESTS = ROOT / "csrc/opapi", ROOT / "tests/vnpu/ops"
sys.path.insert(0, str(OPAPI / "aclnn"))

import generate  # noqa: E402

FOLDERS = ("csrc", "src", "tests", "tools", "benchmarks", "examples")
LANGUAGES = {".py", ".cpp", ".h"}
# A name that says nothing about its purpose collects what has no purpose.
NAMELESS = {"utils", "util", "common", "helpers", "helper", "core", "base", "misc"}
LARGEST, MEDIAN, NEARLY_ALL = 600, 150, 400  # lines: any file, half of the files, 95 % of the files
# Sources of operators whose tests are not in a file of their family that has their name: the file, and why.
TESTED_ELSEWHERE = {
    "attention/native_sparse_infer": ("attention/test_attention_native_sparse.py", "by torch_npu's functions"),
    "elementwise/selu": ("test_rearranged.py", "among MindSpore's operators of several families"),
    "elementwise/swiglu": ("test_npu_operators.py", "among torch_npu's operators of several families"),
    "index/aclop_embedding": ("test_aclop_compiled.py", "torch_npu calls it where operators are compiled"),
    "movement/format_cast": ("test_private_formats.py", "with the operators that take the formats"),
    "movement/rearranged": ("test_rearranged.py", "among MindSpore's operators of several families"),
    "norm/rms": ("test_npu_operators.py", "among torch_npu's operators of several families"),
    "optimizer/aclop_sparse": ("optimizer/test_aclop_sparse_steps.py", "linalg has test_aclop_sparse.py"),
    "reduce/aclop_softmax": ("test_aclop_compiled.py", "torch_npu calls it where operators are compiled"),
    "spatial/quant_convolution": ("matmul/test_matmul_quantized_fused.py", "with the products of int8"),
}


def hand_written() -> dict[Path, int]:
    """Lines of each source file that people write (not those under build, lib, data or generated folders)."""
    left_out = {"build", "lib", "data", "generated", "__pycache__"}
    return {
        path.relative_to(ROOT): len(path.read_bytes().splitlines())
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in LANGUAGES and not left_out & set(path.relative_to(ROOT).parts)
    }


def test_no_file_is_too_long() -> None:
    assert {str(path): lines for path, lines in hand_written().items() if lines > LARGEST} == {}


def test_most_files_are_short() -> None:
    lines = sorted(count for path, count in hand_written().items() if path.parts[0] != "tests")
    assert statistics.median(lines) < MEDIAN
    assert lines[int(0.95 * (len(lines) - 1))] < NEARLY_ALL


def test_file_names_say_what_is_inside() -> None:
    assert [str(path) for path in hand_written() if path.stem.strip("_").lower() in NAMELESS] == []


def test_names_of_test_files_are_unique() -> None:
    """pytest imports them by name alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def sources_of_operators() -> dict[str, set[str]]:
    """The operators that have a line in each source, family/stem, of csrc/opapi."""
    found: dict[str, set[str]] = {}
    lines = generate.implemented(OPAPI) | generate.implemented_aclops(OPAPI)
    for name, line in lines.items():
        found.setdefault(line.file, set()).add(name)
    return found


def untested(sources: dict[str, set[str]]) -> set[str]:
    """The sources without a test file in their family's folder: for aclop_<theme>.cpp it is test_aclop_<theme>.py, for
    another source a file with its stem as words of its name, or that names one of its operators."""
    found = set[str]()
    for source, operators in sources.items():
        family, _, stem = source.partition("/")
        word = re.compile(rf"test_{stem}$" if stem.startswith("aclop_") else rf"_{stem}(_|$)")
        named = re.compile(rf"\b({'|'.join(sorted(operators))})\b")
        files = list((OPERATOR_TESTS / family).glob("test_*.py"))
        if not any(word.search(path.stem) for path in files) and (
            stem.startswith("aclop_") or not any(named.search(path.read_text(encoding="utf-8")) for path in files)
        ):
            found.add(source)
    return found


def test_operators_are_tested_in_the_folder_of_their_family() -> None:
    # First sources that have no test.
    new = {"loss/aclop_new": {"KLDiv"}, "norm/new": {"aclnnNew"}, "new/add": {"aclnnAdd"}}
    assert untested(new) == new.keys()
    sources = sources_of_operators()
    assert len(sources) > 150
    assert untested(sources) == TESTED_ELSEWHERE.keys()
    assert [name for name, _ in TESTED_ELSEWHERE.values() if not (OPERATOR_TESTS / name).exists()] == []


def test_nothing_is_left_for_later() -> None:
    # Written apart, so that this line does not find itself.
    leftover = re.compile(rb"\b(TO" rb"DO|FIX" rb"ME|XX" rb"X|HA" rb"CK)\b")
    assert [str(path) for path in hand_written() if leftover.search((ROOT / path).read_bytes())] == []


def test_generated_pages_are_up_to_date() -> None:
    """Not the operator page: it follows the build, and adding an operator has to stay one line."""
    pages = [path.stem for path in (ROOT / "docs/reference").glob("*.md") if path.stem != "operators"]
    assert len(pages) >= 7
    command = [sys.executable, ROOT / "tools/reference_pages.py", "--check", *pages]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_each_decision_has_its_parts_and_is_listed() -> None:
    listed = re.findall(r"\(docs/decisions/(\w+)\.md\)", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    files = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert sorted(listed) == [path.stem for path in files] and len(files) > 10
    for path in files:
        heads = re.findall(r"^#+ .*", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert heads[1:] == ["## Context", "## Decision", "## Consequences"], path


def test_versions_of_the_wheels_are_stated_once() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"torch=={wheels.SUPPORTED}" in extras["npu"]
    assert f"torch-npu=={wheels.SUPPORTED}" in extras["npu"]
    # Again in the lines that people copy.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    wanted = [*extras["npu"], *(word for word in extras["dev"] if word.startswith("scikit-build-core"))]
    assert [word for word in wanted if f"{word} " not in readme.replace("'", " ")] == []


def test_table_of_variables_is_what_the_device_reads() -> None:
    sources = b"".join(path.read_bytes() for path in (ROOT / "csrc").rglob("*.cpp"))
    read = {name.decode() for name in re.findall(rb'"(VNPU_[A-Z_]+)"', sources)}
    assert read == {row.name for row in VARIABLES if row.name.startswith("VNPU_")} - {"VNPU_LIBRARIES"}


@pytest.mark.parametrize("name", sorted(load_chips()))
def test_chip_profile_is_complete(name: str) -> None:
    chip = load_chips()[name]
    assert set(chip) - {"usable_gib", "context_gib"} == {
        *("cube_cores", "vector_cores", "clock_ghz", "memory_gib", "bandwidth_gbs", "l2_mib"),
        *("bf16", "inf_nan", "operators", "nd_native", "unified", "a3", "source", "time"),
    }
    assert chip["operators"] in ("910B", "910A", "310P")
    assert all(chip[field] > 0 for field in ("cube_cores", "vector_cores", "clock_ghz", "memory_gib"))
    assert 0.9 * chip["memory_gib"] < chip.get("usable_gib", chip["memory_gib"]) <= chip["memory_gib"]
    assert 0 < chip.get("context_gib", 0.5) < 1


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=lambda p: p.name)
def test_pages_point_to_what_exists(path: Path) -> None:
    """Links, and names of our files in backticks (`csrc/opapi`), are those of this tree, not of a past one."""
    text = path.read_text(encoding="utf-8")
    links = {link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not (path.parent / link).exists()}
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)}|docs)/[\w./]+)`", text)
    assert links == set()
    assert [name for name in named if not (ROOT / name).exists() and "vnpu/lib" not in name] == []


def walk_of_an_operator(text: str) -> dict[str, list[str]]:
    """The files of "One operator from torch to kernel" in ARCHITECTURE.md, each with the names its row has of it."""
    section = text.partition("## One operator from torch to kernel\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \d+ \| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    return {file: [name for name in re.findall(r"`([^`]+)`", said) if "/" not in name] for file, said in rows}


def gone(walk: dict[str, list[str]]) -> list[str]:
    """The names that are in no file of their row."""
    return [
        f"{name} in {file}"
        for file, names in walk.items()
        for name in names
        if not re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8"))
    ]


def test_the_walk_of_an_operator_is_that_of_the_code() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(walk_of_an_operator(text)) >= 10
    # First a walk that leads nowhere.
    assert gone(walk_of_an_operator(text.replace("`submit`", "`submit_nowhere`"))) == [
        "submit_nowhere in csrc/device/stream.cpp"
    ]
    assert gone(walk_of_an_operator(text)) == []
