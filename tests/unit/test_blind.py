"""The blind set (tests/blind): its files follow their format, and each word of its scorer can be said."""

from __future__ import annotations

import ast
import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchport.convert import workers
from torchport.findings import Finding, Location, Safety, Severity
from torchport.rules import Style
from torchport.source.module import Module

sys.path.insert(0, str(Path(__file__).parents[1] / "blind"))

import casefile
import entry
import run
import scoring
from scoring import Word

CASES = casefile.load()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("--- a.py\n  x\n", "a line outside"),
        ("=== one: why\n  x\n", "a line outside"),
        ("=== one: why\n", "has no file"),
        ("=== one (runs b.py): why\n--- a.py\n  x\n", "not the one that it runs"),
        ("=== one: why\n--- a.py\n- x\n", "becomes nothing"),
        ("=== one: why\n--- a.py\n- x\n+ x\n", "becomes itself"),
        ("=== one: why\n--- a.py\n  x\n+ y\n", "nothing that may become"),
        ("=== one: why\n--- a.py\n!\n", "nothing that may become"),
        ("=== one: why\n--- a.py\n% x\n", "no marker"),
        ("=== one: why\n--- a.py\n!!x\n", "no marker"),
        ("=== one: why\n--- a.py\n# corrected: by whom\n  x\n", "needs a line and a reason"),
        ("=== one: why\n--- a.py\n  x\n# corrected:\n", "needs a line and a reason"),
    ],
)
def test_what_is_no_case_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(casefile.CaseError, match=complaint):
        list(casefile.read(text, "wrong"))


def test_a_case_is_read() -> None:
    text = "=== one (runs a.py -v): why\n--- a.py [crlf]\n  é\n- x\n+ y\n+!z\n!\n~ u\n--- b/c.yaml [utf-16]\n? w\n"
    text += "# corrected: was !; it runs\n"
    (case,) = casefile.read(text, "kind")
    assert (case.name, case.about, case.category, case.runs) == ("one", "why", "kind", ("a.py", "-v"))
    script, settings = case.files
    assert script.data() == "é\r\nx\r\nu\r\n".encode() and settings.data() == "w\n".encode("utf-16")
    assert case.corrected == ["was !; it runs"]
    assert script.lines[1] == casefile.Line("x", "-", [("y", False), ("z", True)], True)


def test_the_set_is_large_enough() -> None:
    assert len(CASES) >= 200
    assert sum(bool(case.runs) for case in CASES) >= 100
    assert all(case.about for case in CASES)


def results(file: casefile.File) -> Iterator[str]:
    """The source, and what is expected first of each line."""
    yield file.data().decode(file.encoding)
    yield "".join((line.becomes[0][0] if line.becomes else line.text) + "\n" for line in file.lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sources_and_expectations_parse(case: casefile.Case) -> None:
    for file in case.files:
        for text in results(file):
            if file.path.endswith((".json", ".ipynb")):
                json.loads(text)
            elif file.path.endswith(".py"):
                if case.name == "python_two":
                    with pytest.raises(SyntaxError):
                        ast.parse(text)
                else:
                    ast.parse(text)


WARNING, INFO = Severity.WARNING, Severity.INFO
OLD = "x = torch.ones(1).cuda()"
NEW = "x = torch.ones(1).npu()"


def said(line: int, severity: Severity = WARNING, end: int = 0, path: str = "a.py") -> Finding:
    where = Location(path, line, 1, end or line, 2)
    return Finding("TP1", severity, Safety.REPORT, where, "said")


@pytest.mark.parametrize(
    ("rows", "output", "severity", "word"),
    [
        # What has to change.
        (f"- {OLD}\n+ {NEW}", NEW, None, Word.RIGHT),
        (f"- {OLD}\n+ {NEW}", NEW, WARNING, Word.RIGHT),
        (f"- {OLD}\n+ y\n+ {NEW}", NEW, None, Word.RIGHT),
        (f"- {OLD}\n+ {NEW}", OLD, WARNING, Word.REPORTED),
        (f"- {OLD}\n+ {NEW}\n!", OLD, WARNING, Word.RIGHT),
        (f"- {OLD}\n+ {NEW}", OLD, None, Word.SILENT),
        (f"- {OLD}\n+ {NEW}\n!", OLD, INFO, Word.SILENT),
        (f"- {OLD}\n+ {NEW}", "x = torch.zeros(1).npu()", WARNING, Word.WRONG),
        (f"- {OLD}\n+!{NEW}", NEW, WARNING, Word.RIGHT),
        (f"- {OLD}\n+!{NEW}", NEW, INFO, Word.SILENT),
        ("- d = 'cuda'\n+ d = \"npu\"", "d = 'npu'", None, Word.RIGHT),
        ("- if x:  # cuda\n+ if y:", "    if y:", None, Word.WRONG),
        # What has to stay, with a warning.
        ("! import cupy", "import cupy", WARNING, Word.RIGHT),
        ("! import cupy", "import cupy", INFO, Word.SILENT),
        ("! import cupy", "import cupy", None, Word.SILENT),
        ("! import cupy", "import numpy", WARNING, Word.WRONG),
        ("! import cupy\n+!import numpy", "import numpy", WARNING, Word.RIGHT),
        ("! import cupy\n+!import numpy", "import numpy", None, Word.SILENT),
        # What has to be said, or may be.
        ("~ m.cuda()", "m.cuda()", INFO, Word.RIGHT),
        ("~ m.cuda()", "m.npu()", None, Word.RIGHT),
        ("~ m.cuda()", "m.cuda()", None, Word.SILENT),
        ("? m.cuda()", "m.cuda()", WARNING, Word.RIGHT),
        ("? m.cuda()", "m.cuda()", None, Word.RIGHT),
        ("? m.cuda()", "m.npu()", None, Word.WRONG),
        # What has to be left alone.
        ("  cuda = 1", "cuda = 1", None, Word.RIGHT),
        ("  cuda = 1", "cuda = 1", INFO, Word.RIGHT),
        ("  cuda = 1", "cuda = 1", WARNING, Word.FALSE),
        ("  cuda = 1", "npu = 1", None, Word.WRONG),
        ("  x = 1", "x = 1", WARNING, Word.FALSE),
        ("  x = 1", "x = 1", None, None),
        ("  x = 1", "x = 2", None, Word.WRONG),
    ],
)
def test_each_word_is_said(rows: str, output: str, severity: Severity | None, word: Word | None) -> None:
    (case,) = casefile.read(f"=== one: why\n--- a.sh\n{rows}\n", "kind")
    findings = [said(1, severity, path="a.sh")] if severity else []
    assert [one.word for one in scoring.judge(case, {"a.sh": f"{output}\n".encode()}, findings)] == (
        [word] if word else []
    )


def test_a_warning_is_false_where_it_begins_and_enough_on_every_line_of_its_range() -> None:
    (case,) = casefile.read("=== one: why\n--- a.py\n  f(cuda,\n! cuda,\n  cuda)\n", "kind")
    verdicts = scoring.judge(case, {"a.py": b"f(cuda,\ncuda,\ncuda)\n"}, [said(2, end=3)])
    assert [one.word for one in verdicts] == [Word.RIGHT, Word.RIGHT, Word.RIGHT]
    elsewhere = scoring.judge(case, {"a.py": b"f(cuda,\ncuda,\ncuda)\n"}, [said(2, path="b.py")])
    assert [one.word for one in elsewhere] == [Word.RIGHT, Word.SILENT, Word.RIGHT]


TORCH = "  import torch\n  d = 1\n"


@pytest.mark.parametrize(
    ("rows", "output", "words"),
    [
        (f"{TORCH}- {OLD}\n+ {NEW}", f"import torch\nimport torch_npu\nd = 1\n{NEW}", [Word.RIGHT]),
        (f"{TORCH}- {OLD}\n+ {NEW}", f"import torch\nd = 1\n{NEW}", [Word.RIGHT, Word.WRONG]),
        (f"{TORCH}- {OLD}\n+ {NEW}", f"import torch\nd = 1\n{NEW}\nimport torch_npu", [Word.RIGHT, Word.WRONG]),
        (f"{TORCH}- {OLD}\n+ {NEW}", f"import torch\nd = 1\n# torch_npu\n{NEW}", [Word.RIGHT, Word.WRONG]),
        ("  x = 1", "import torch_npu\nx = 1", [Word.WRONG]),
        (f"{TORCH}- {OLD}\n+ {NEW}", f"import torch\nimport torch_npu\nd = 1\nf()\n{NEW}", [Word.RIGHT, Word.WRONG]),
        (f"{TORCH}- {OLD}\n+ {NEW}", "import torch\nimport torch_npu", [Word.WRONG, Word.WRONG]),
        (
            "- a.cuda()\n+ a.npu()\n- b.cuda()\n+ b.npu()",
            "import torch_npu\na.npu()\nb.cuda()",
            [Word.RIGHT, Word.SILENT],
        ),
    ],
)
def test_added_and_removed_lines(rows: str, output: str, words: list[Word]) -> None:
    (case,) = casefile.read(f"=== one: why\n--- a.py\n{rows}\n", "kind")
    verdicts = scoring.judge(case, {"a.py": f"{output}\n".encode()}, [])
    assert Counter(one.word for one in verdicts) == Counter(words)


PROJECT = {
    "main.py": "import torch\n{main}from lib import net\nnet.f()\n",
    "lib/__init__.py": "",
    "lib/net.py": "{net}import torch\nfrom .where import D\n\ndef f():\n    return torch.npu.current_device()\n",
    "lib/where.py": "import torch\nD = {where}\n",
}
IMPORT = "import torch_npu\n"


@pytest.mark.parametrize(
    ("main", "net", "where", "late"),
    [
        ("", "", "torch.npu.is_available()", ["lib/where.py"]),
        ("", "", "1", ["lib/net.py"]),
        ("if torch.npu.is_available():\n    pass\n" + IMPORT, "", "1", ["main.py"]),
        (IMPORT, "", "torch.npu.is_available()", []),
        ("", IMPORT, "torch.npu.is_available()", []),
        ("try:\n    import torch_npu\nexcept ImportError:\n    pass\n", "", "torch.npu.is_available()", []),
        ("def late():\n    import torch_npu\n", "", "torch.npu.is_available()", ["lib/where.py"]),
    ],
)
def test_torch_npu_is_imported_before_its_use(main: str, net: str, where: str, late: list[str]) -> None:
    sources = {path: text.format(main=main, net=net, where=where) for path, text in PROJECT.items()}
    assert entry.too_late(sources, {"lib/net.py", "lib/where.py", "main.py"}) == late


@pytest.mark.parametrize(("key", "late"), [("PrivateUse1", 0), ("hccl", 1)])
def test_what_names_no_device_needs_no_import(key: str, late: int) -> None:
    (case,) = casefile.read(f"=== one: why\n--- a.py\n  import torch\n- f('CUDA')\n+ f('{key}')\n", "kind")
    verdicts = scoring.judge(case, {"a.py": f"import torch\nf('{key}')\n".encode()}, [])
    assert [one.word for one in verdicts] == [Word.RIGHT, Word.WRONG][: 1 + late]


def test_what_has_not_changed_needs_no_import() -> None:
    assert entry.too_late({"a.py": "x = 1\n"}, set()) == []
    assert entry.too_late({"a.py": "import torch\nD = 'npu'\n"}, {"a.py"}) == ["a.py"]


def test_a_converter_that_fails_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(scoring, "convert_tree", broken)
    (verdict,) = scoring.judge_case(CASES[0], tmp_path)
    assert (verdict.word, verdict.text) == (Word.CRASH, "RuntimeError('broken')")


def found(**counts: int) -> dict[str, object]:
    row = {word.value: counts.get(word.name, 0) for word in Word}
    return {"table": {"all": row}, "not_right": []}


@pytest.mark.parametrize(
    ("counts", "bars"),
    [
        ({"RIGHT": 97, "REPORTED": 3}, 0),
        ({"RIGHT": 96, "REPORTED": 4}, 1),
        ({"RIGHT": 999, "SILENT": 1}, 1),
        ({"RIGHT": 999, "WRONG": 1}, 1),
        ({"RIGHT": 999, "FALSE": 5}, 0),
        ({"RIGHT": 999, "FALSE": 6}, 1),
        ({"RIGHT": 999, "CRASH": 1}, 1),
    ],
)
def test_bars_are_held(counts: dict[str, int], bars: int) -> None:
    assert len(list(run.failed_bars(found(**counts)))) == bars


def test_bars_of_the_runs_are_held() -> None:
    ran = {"cases": 100, "ran": 95, "failed": {}}
    assert not list(run.failed_bars(found(RIGHT=1) | {"converted": ran}))
    assert list(run.failed_bars(found(RIGHT=1) | {"redirected": ran}))
    assert list(run.failed_bars(found(RIGHT=1) | {"converted": ran | {"ran": 94}}))


def test_what_became_worse_is_said() -> None:
    line = {"case": "one", "path": "a.py", "line": 1, "text": OLD}
    reported = {"not_right": [line | {"word": "reported only"}]}
    silent = {"not_right": [line | {"word": "silent miss"}]}
    right: dict[str, list[object]] = {"not_right": []}
    assert list(run.worse(reported, silent)) == ["one/a.py:1: reported only -> silent miss"]
    assert list(run.worse(right, reported)) == ["one/a.py:1: right -> reported only"]
    assert not list(run.worse(silent, reported)) and not list(run.worse({}, silent))
    ran, failed = ({"not_right": [], "converted": {"failed": names}} for names in ({}, {"one": "no"}))
    assert list(run.worse(ran, failed)) == ["one: ran converted, and does not now"]


def test_the_table_is_by_category() -> None:
    verdicts = [
        scoring.Verdict("c", kind, "a.py", 1, word, "")
        for kind, word in (("b_c", Word.RIGHT), ("a", Word.SILENT), ("a", Word.RIGHT))
    ]
    rows = scoring.table(verdicts)
    assert list(rows) == ["a", "b_c", "all"] and rows["all"]["right"] == 2
    assert scoring.markdown(rows).splitlines()[2] == "| a | 2 | 1 | 0 | 1 | 0 | 0 | 0 |"


def test_parsed_files_are_no_cycles(tmp_path: Path) -> None:
    """The workers look for no cycles between two files: what was parsed has to go by itself."""
    for case in CASES:
        if case.category in ("no_harm", "across_files"):
            case.write(tmp_path)
    files = [(path, path.relative_to(tmp_path).as_posix()) for path in sorted(tmp_path.rglob("*.py"))]
    assert len(files) > 20
    project = workers._project(files, workers.Extras())
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for path, name in files:
            workers.survey_file(path, name, project)
            workers.convert_file(path, name, Style.NPU, project)
        gc.collect()
        assert [one.text.path for one in gc.garbage if isinstance(one, Module)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
