"""What speaks of errors and reports none finds no cause; the same words in a log still do."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from torchport import cli
from torchport.diagnose import diagnose_logs, diagnose_text
from torchport.diagnose.matching import Matcher
from torchport.diagnose.quoting import kind_of, remove_quoted_text
from torchport.knowledge.errors import load_error_rows

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FULL = "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB"
GCC = "/lib/libc.so.6: version `GLIBC_2.34' not found (required by `python')"


def said(text: str) -> str:
    return str(diagnose_text(text).data["row"])


@pytest.mark.parametrize("path", [str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_a_document_names_no_cause(path: str) -> None:
    assert diagnose_text((ROOT / path).read_text("utf-8")).data["answer"] in ("clean", "open")


def test_documents_are_there() -> None:
    names = {path.name for path in DOCUMENTS}
    assert {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "diagnose.md", "errors.md"} <= names


def test_a_file_that_is_no_log_is_named_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"raise {FULL!r}\n")
    assert cli.main(["diagnose", str(script)]) == 2
    error = capsys.readouterr().err
    assert "is Python source, no log" in error
    assert f"torchport run {script}" in error
    assert cli.main(["diagnose", str(ROOT / "README.md")]) == 2
    error = capsys.readouterr().err
    assert "is a document, no log" in error
    assert "torchport diagnose - <" in error
    assert cli.main(["diagnose", str(tmp_path / "none.py")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_of_a_folder_the_logs_are_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f'"""{FULL}"""\n')
    (tmp_path / "README.md").write_text(f"{FULL}\n")
    (tmp_path / "rank_0.log").write_text("step 1\n")
    result = diagnose_logs(str(tmp_path), None)
    assert (result.data["answer"], result.data["logs"]) == ("open", 1)
    assert "2 of 3 files were not read" in result.findings[0].message
    (tmp_path / "rank_1.log").write_text(f"{FULL}\n")
    assert diagnose_logs(str(tmp_path), None).data["row"] == "memory.device-full"


def test_names() -> None:
    assert kind_of(PurePath("a/Train.PY")) == "Python source"
    for name in ("train.log", "log", "stderr", "plog-1_2026.log.1", "log.txt", "out.json", "train.py.log"):
        assert kind_of(PurePath(name)) == "", name


@pytest.mark.parametrize(
    "line",
    [
        f"| cause | {FULL} | yes, the first in time |",
        f"It prints `{FULL}` and goes on.",
        f"tests/unit/test_x.py::test_words[{FULL}] PASSED            [ 12%]",
        f"[gw1] [ 12%] PASSED tests/unit/test_x.py::test_words[{FULL}]",
        f'  File "/job/train.py", line 3, in step\n    if "{FULL}" in str(error):',
        f'[rank1]:   File "/job/train.py", line 3, in step\n[rank1]:     if "{FULL}" in str(error):',
    ],
)
def test_what_is_quoted_is_no_cause(line: str) -> None:
    assert said(f"{line}\n") == ""
    assert said(f"{line}\n{FULL}\n") == "memory.device-full", "and hides none"


def test_what_only_looks_quoted_is_read() -> None:
    assert remove_quoted_text(GCC) == GCC
    assert said(f"ImportError: {GCC}\n") == "environment.glibc"
    assert said(f"| {FULL}\n") == "memory.device-full"
    assert said(f"tests/a.py::test_b FAILED\nE   {FULL}\n") == "memory.device-full"


def test_an_exception_below_a_frame_without_text_is_read() -> None:
    for prefix in ("", "[rank0]: "):
        lines = ("Traceback (most recent call last):", '  File "<string>", line 1, in <module>', FULL)
        assert said("".join(f"{prefix}{line}\n" for line in lines)) == "memory.device-full"


def test_the_script_s_own_text_is_known_across_blocks() -> None:
    matcher = Matcher()
    for block in (b'  File "/job/train.py", line 3, in step\n', f'    raise "{FULL}"\n'.encode()):
        assert list(matcher.find_hits(block, block.split(b"\n"))) == []
    block = f"{FULL}\n".encode()
    assert len(list(matcher.find_hits(block, block.split(b"\n")))) == 1


def test_what_tests_that_pass_print() -> None:
    """Their names have the words of errors in them, as pytest's of this project do."""
    names = "".join(
        f"tests/test_rows.py::test_row[{row.samples[0]}] PASSED  [  3%]\n" for row in load_error_rows().values()
    )
    assert diagnose_text(names).data["answer"] in ("clean", "open")
