"""csrc/unity.py: sources share a translation unit only if neither can see a private name of the other."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import unity  # noqa: E402

PLAIN = "namespace a {\nint plain() { return 1; }\n}\n"

APART = {
    "a function in an unnamed namespace": "namespace a {\nnamespace {\nint twice(int x) { return 2 * x; }\n}\n}\n",
    "a static function": "static int twice(int x) { return 2 * x; }\n",
    "a function that no header declares": "namespace a {\nint twice(int x) {\n    return 2 * x;\n}\n}\n",
    "a class": "namespace {\nstruct twice {\n    int x;\n};\n}\n",
    "an enumeration": "namespace {\nenum class twice { One };\n}\n",
    "an alias": "namespace {\nusing twice = int;\n}\n",
    "an alias of a namespace": "namespace twice = a;\n",
    "a constant": "namespace {\nconstexpr int twice = 2;\n}\n",
    "an array": "static const int twice[] = {1, 2};\n",
    "a variable of a template": "namespace {\nstd::map<int, int> twice;\n}\n",
    "a template": "namespace {\ntemplate <class T>\nT twice(T x) {\n    return x + x;\n}\n}\n",
    "a macro": "#define twice(x) \\\n    ((x) + (x))\n",
    "what follows a text with a brace": 'static const char *open = "{";\nstatic int twice() { return 1; }\n',
    "what follows a comment with a brace": "// {\nstatic int twice() { return 1; }\n",
    "what follows a class": "namespace {\nclass A {\n    void f() { if (1) { } }\n};\nint twice() { return 1; }\n}\n",
}
USES = "namespace b {\nint uses(int x) { return twice(x); }\n}\n"


def apart(sources: dict[str, str], headers: dict[str, str] | None = None) -> bool:
    found = unity.kept_apart(sources, headers or {})
    (one, other) = sources
    assert (other in found[one]) == (one in found[other])
    return other in found[one]


@pytest.mark.parametrize("text", APART.values(), ids=APART)
def test_a_private_name_and_a_use_of_it_are_kept_apart(text: str) -> None:
    assert apart({"one.cpp": text, "other.cpp": USES})
    assert apart({"one.cpp": text, "other.cpp": text})
    assert not apart({"one.cpp": text, "other.cpp": PLAIN})


@pytest.mark.parametrize("use", ["x.twice()", "x->twice()", "b::twice()", "// twice", '"twice"'])
def test_a_name_that_is_looked_up_elsewhere_is_no_use(use: str) -> None:
    text = f"namespace b {{\nint uses(X x) {{ return {use}\n;}}\n}}\n"
    assert not apart({"one.cpp": APART["a static function"], "other.cpp": text})


def test_what_a_header_declares_is_not_private() -> None:
    defines = "namespace a {\nint twice(int x) { return 2 * x; }\n}\n"
    assert apart({"one.cpp": defines, "other.cpp": USES})
    assert not apart({"one.cpp": defines, "other.cpp": USES}, {"a.h": "namespace a {\nint twice(int x);\n}\n"})


def test_using_declarations_must_be_the_same() -> None:
    used = "using namespace a;\n"
    assert apart({"one.cpp": used, "other.cpp": PLAIN})
    assert not apart({"one.cpp": used + "int x();\n", "other.cpp": used + "int y();\n"})


def test_a_header_of_the_other_must_not_have_the_name() -> None:
    """`give` of csrc/opapi/recurrent/aclop_lstm.cpp is one of precision.h too, which others include."""
    header = {"give.h": "namespace a {\ninline void give(int x) {}\n}\n", "more.h": '#include "give.h"\n'}
    own = "namespace a {\nnamespace {\nvoid give(long x) {}\n}\nvoid f() { give(1); }\n}\n"
    assert apart({"one.cpp": own, "other.cpp": '#include "give.h"\n'}, header)
    assert apart({"one.cpp": own, "other.cpp": '#include "more.h"\n'}, header)
    assert not apart({"one.cpp": own, "other.cpp": PLAIN}, header)


def test_a_name_that_a_macro_of_a_header_uses_stays_alone() -> None:
    header = {"op.h": "#define OP(NAME) \\\n    int NAME() { return elements(); }\n"}
    assert apart({"one.cpp": "static int elements() { return 1; }\n", "other.cpp": "OP(x)\n"}, header)
    assert apart({"one.cpp": "// Compiled alone: a test\n", "other.cpp": PLAIN})


def test_units_are_no_larger_than_asked_for() -> None:
    sources = {f"{n}.cpp": f"int f{n}();\n" + " " * 85 for n in range(10)}
    units = unity.grouped(sources, {}, unit=400)
    assert sorted(name for unit in units for name in unit) == sorted(sources)
    assert sorted(map(len, units)) == [2, 4, 4]


def sources(folder: Path) -> list[Path]:
    paths = [folder / f"source{n}.cpp" for n in range(8)]
    for n, path in enumerate(paths):
        path.write_text(f'#include <vector>\n#include "table.inc"\nint f{n}() {{ return {n}; }}\n', encoding="utf-8")
        os.utime(path, (1, 1))
    return paths


def test_a_changed_source_is_compiled_by_itself(tmp_path: Path) -> None:
    paths, folder = sources(tmp_path), tmp_path / "unity/library"
    (unit,) = unity.planned(folder, paths)
    assert unity.members(unit) == [str(path) for path in paths]
    assert unit.read_text(encoding="utf-8").count("#include <vector>") == 1
    assert "table.inc" not in unit.read_text(encoding="utf-8")  # is data, and has its place in the source
    written = unit.stat().st_mtime_ns
    assert unity.planned(folder, paths) == [unit]
    assert unit.stat().st_mtime_ns == written
    os.utime(paths[3])
    assert unity.planned(folder, paths) == [paths[3], unit]
    assert str(paths[3]) not in unity.members(unit)
    new = tmp_path / "new.cpp"
    new.write_text("int g();\n", encoding="utf-8")
    assert unity.planned(folder, [*paths, new]) == [new, paths[3], unit]
    assert unity.planned(folder, paths[1:]) == [paths[3], unit]  # one is gone
    assert str(paths[0]) not in unity.members(unit)


def test_many_changes_make_a_new_plan(tmp_path: Path) -> None:
    paths, folder = sources(tmp_path), tmp_path / "unity/library"
    unity.planned(folder, paths)
    for path in paths[:3]:
        os.utime(path)
    assert [unity.members(one) for one in unity.planned(folder, paths)] == [[str(path) for path in paths]]


def test_each_source_has_its_compile_command(tmp_path: Path) -> None:
    (unit,) = unity.planned(tmp_path / "unity/library", sources(tmp_path))
    alone = {"directory": "/", "file": str(tmp_path / "alone.cpp"), "command": f"c++ -c {tmp_path}/alone.cpp"}
    commands = tmp_path / "compile_commands.json"
    commands.write_text(json.dumps([alone, {"directory": "/", "file": str(unit), "command": f"c++ -c {unit}"}]))
    (tmp_path / "alone.cpp").touch()
    unity.complete(commands)
    rows = {row["file"]: row["command"] for row in json.loads(commands.read_text())}
    assert rows[str(tmp_path / "source2.cpp")] == f"c++ -c {tmp_path}/source2.cpp"
    assert len(rows) == 10
    unity.complete(commands)
    assert len(json.loads(commands.read_text())) == 10


def test_every_source_of_ours_is_in_one_unit() -> None:
    headers = {str(path.relative_to(ROOT / "csrc")): path.read_text("utf-8") for path in (ROOT / "csrc").rglob("*.h")}
    texts = {str(path): path.read_text("utf-8") for path in (ROOT / "csrc/opapi").glob("*/*.cpp")}
    units = unity.grouped(texts, headers)
    assert sorted(name for unit in units for name in unit) == sorted(texts)
    assert len(units) < len(texts) / 3
