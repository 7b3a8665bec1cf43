"""Converting files and folders: what is kept, what is refused, and the way back."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from counting import grows_with

from torchport.convert import convert_source, convert_tree, preview_tree, undo, undo_tree, write_tree
from torchport.convert import inspection as inspection_module
from torchport.errors import TorchportError
from torchport.findings import Result, Safety, Severity
from torchport.rules import Rule, list_rules

ROOT = Path(__file__).parents[2]


def codes(data: bytes) -> list[str]:
    return [finding.code for finding in convert_source(data, "a.py").findings]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b"import torch\r\nx.cuda()  \r\n\x0c\r\ny = 1",
            b"import torch\r\nimport torch_npu\r\nx.npu()  \r\n\x0c\r\ny = 1",
        ),
        (
            b"# coding: latin-1\nimport torch\ns = 'caf\xe9'; x.cuda()\n",
            b"# coding: latin-1\nimport torch\nimport torch_npu\ns = 'caf\xe9'; x.npu()\n",
        ),
        (
            "import torch\ns = '中文'; d = torch.device('cuda')\n".encode(),
            "import torch\nimport torch_npu\ns = '中文'; d = torch.device('npu')\n".encode(),
        ),
        (
            b"\xef\xbb\xbfimport torch\rtorch.cuda.init()\r",
            b"\xef\xbb\xbfimport torch\rimport torch_npu\rtorch.npu.init()\r",
        ),
        (b"import torch; torch.cuda.init()", b"import torch; import torch_npu; torch.npu.init()"),
        (
            b"import torch\ntorch . cuda \\\n  . init()\n",
            b"import torch\nimport torch_npu\ntorch . npu \\\n  . init()\n",
        ),
    ],
)
def test_bytes_outside_edits_are_kept(data: bytes, expected: bytes) -> None:
    assert convert_source(data, "a.py").output == expected


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"import torch\nprint 'cuda'\n", "TP901"),
        (b"x = 'cuda\xff'\n", "TP902"),
        (b"# coding: nonsense\ncuda\n", "TP902"),
        (b"cuda = 1\x00\n", "TP901"),
        (b"cuda" + b"(" * 5000, "TP901"),
        (b"x = " + b"cuda + " * 20000 + b"1\n", "TP901"),
    ],
)
def test_a_bad_file_is_one_finding(data: bytes, code: str) -> None:
    conversion = convert_source(data, "a.py")
    assert conversion.output == data
    assert [finding.code for finding in conversion.findings] == [code]
    assert conversion.findings[0].severity is Severity.ERROR


def test_files_without_cuda_are_not_even_parsed() -> None:
    assert convert_source(b"def broken(:\n", "a.py").findings == ()


@pytest.mark.parametrize(
    ("comment", "changed"),
    [(b"# torchport: ignore", False), (b"# torchport: ignore[TP120]", False), (b"# torchport: ignore[TP101]", True)],
)
def test_ignore_comments(comment: bytes, changed: bool) -> None:
    data = b"import torch\nx.cuda()  " + comment + b"\n"
    assert (convert_source(data, "a.py").output != data) is changed


def test_a_failing_rule_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[object]:
        raise KeyError("boom")

    first = list_rules()[0]
    fake = Rule("TP000", "t", Safety.SAFE, Severity.INFO, "w.", "https://x", broken, (), ())  # type: ignore[arg-type]
    monkeypatch.setattr(inspection_module, "list_rules", lambda: (fake, *list_rules()))
    conversion = convert_source(b"import torch\nx.cuda()\n", "a.py")
    assert first.code
    assert "TP903" in [finding.code for finding in conversion.findings]
    assert b"x.npu()" in conversion.output


def test_output_that_fails_the_self_check_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(module: object, _: object) -> list[object]:
        from torchport.findings import Edit, Finding

        return [Finding("TP000", Severity.INFO, Safety.SAFE, None, "m", fix=(Edit(0, 6, b"import import"),))]

    fake = Rule("TP000", "t", Safety.SAFE, Severity.INFO, "w.", "https://x", breaks, (), ())  # type: ignore[arg-type]
    monkeypatch.setattr(inspection_module, "list_rules", lambda: (fake,))
    conversion = convert_source(b"import torch  # cuda\n", "a.py")
    assert conversion.output == b"import torch  # cuda\n"
    assert conversion.findings[0].code == "TP903"
    assert "cannot be read any more" in conversion.findings[0].message
    assert not any(finding.fix for finding in conversion.findings)


def project(tmp_path: Path) -> Path:
    root = tmp_path / "proj"
    (root / "sub dir").mkdir(parents=True)
    (root / "train.py").write_bytes(b"import torch\nx = torch.ones(2).cuda()\n")
    (root / "train.py").chmod(0o755)
    (root / "sub dir" / "模型 (a),b=c@d.py").write_bytes(b"import torch\r\ntorch.cuda.init()")
    (root / "plain.py").write_bytes(b"x = 1\n")
    (root / "broken.py").write_bytes(b"def cuda(:\n")
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "tool").write_bytes(b"#!/usr/bin/env python3\nimport torch\ntorch.cuda.init()\n")
    (root / "link.py").symlink_to("train.py")
    (root / "loop").symlink_to(".")
    return root


def test_convert_tree(tmp_path: Path) -> None:
    root, out = project(tmp_path), tmp_path / "out"
    result = convert_tree(root, out)
    assert (out / "train.py").read_bytes() == b"import torch\nimport torch_npu\nx = torch.ones(2).npu()\n"
    assert (out / "train.py").stat().st_mode & 0o777 == 0o755
    assert b"torch.npu.init()" in (out / "tool").read_bytes()
    assert (out / "broken.py").read_bytes() == b"def cuda(:\n"
    assert (out / "run.sh").read_bytes() == b"#!/bin/sh\n"
    assert os.readlink(out / "loop") == "."
    assert os.readlink(out / "link.py") == "train.py"
    assert [finding.location.path for finding in result.findings if finding.code == "TP901" and finding.location] == [
        "broken.py"
    ]
    assert Result.read(out / ".torchport" / "convert.json").to_json() == json.loads(result.text())
    assert (root / "train.py").read_bytes() == b"import torch\nx = torch.ones(2).cuda()\n"
    again = convert_tree(root, out)
    assert again == result


def test_output_inside_the_project(tmp_path: Path) -> None:
    root = project(tmp_path)
    convert_tree(root, root / "npu")
    convert_tree(root, root / "npu")
    assert not (root / "npu" / "npu").exists()


@pytest.mark.parametrize("place", [".", "occupied", "file.txt"])
def test_output_that_is_taken(tmp_path: Path, place: str) -> None:
    root = project(tmp_path)
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "mine.txt").write_text("mine")
    (tmp_path / "file.txt").write_text("mine")
    out = root if place == "." else tmp_path / place
    with pytest.raises(TorchportError, match="output") as caught:
        convert_tree(root, out)
    assert caught.value.hint


def test_a_file_asked_for_by_name_is_read_whatever_it_holds(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\ndef f(:\n")
    (finding,) = preview_tree(tmp_path / "broken.py").findings
    assert (finding.code, finding.location.line if finding.location else 0) == ("TP901", 2)
    assert preview_tree(tmp_path).findings == ()  # in a tree, what does not name CUDA is left unread


@pytest.mark.parametrize("use", ["x.cuda()", "x.is_cuda", "x.to('cuda')"])
def test_names_that_only_a_star_import_can_bring(use: str) -> None:
    """Found by fuzzing: they were torch's under `torch.cuda` and anybody's under `torch_npu.npu`."""
    conversion = convert_source(f"from torch.cuda import *\n{use}\n".encode(), "a.py")
    assert conversion.output.startswith(b"from torch_npu.npu import *\n")
    assert "TP903" not in [finding.code for finding in conversion.findings]


def test_one_file(tmp_path: Path) -> None:
    root = project(tmp_path)
    result = convert_tree(root / "train.py", tmp_path / "out")
    assert (tmp_path / "out" / "train.py").read_bytes().endswith(b".npu()\n")
    assert result.data["changed"] == ["train.py"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".torchport", "train.py"]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(TorchportError, match="no file or folder"):
        preview_tree(tmp_path / "none")


def test_diff_applies(tmp_path: Path) -> None:
    root, out = project(tmp_path), tmp_path / "out"
    diff = preview_tree(root).data["diff"].encode("utf-8", "surrogateescape")
    convert_tree(root, out)
    if shutil.which("git") is None:
        pytest.skip("git applies the patch, and it is not installed")
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=diff, cwd=root, check=True)
    for name in ("train.py", "tool", "plain.py", "sub dir/模型 (a),b=c@d.py"):
        assert (root / name).read_bytes() == (out / name).read_bytes()


def test_write_and_undo(tmp_path: Path) -> None:
    root = project(tmp_path)
    before = {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    result = write_tree(root)
    assert (root / "train.py").read_bytes() != before["train.py"]
    assert len(result.data["changed"]) == 3
    assert write_tree(root).data["changed"] == []
    assert sorted(undo_tree(root)) == sorted(result.data["changed"])
    assert {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not (root / ".torchport").exists()
    with pytest.raises(TorchportError, match="no conversion"):
        undo_tree(root)


def test_undo_keeps_later_work(tmp_path: Path) -> None:
    root = project(tmp_path)
    write_tree(root)
    (root / "train.py").write_bytes(b"mine\n")
    tool = (root / "tool").read_bytes()
    with pytest.raises(TorchportError, match=r"train\.py changed since"):
        undo_tree(root)
    assert (root / "tool").read_bytes() == tool


def test_undo_after_an_interruption(tmp_path: Path) -> None:
    root = project(tmp_path)
    original = (root / "tool").read_bytes()
    train = (root / "train.py").read_bytes()
    write_tree(root)
    (root / "tool").write_bytes(original)  # as if the run had stopped before this file
    assert "tool" not in undo_tree(root)
    assert (root / "train.py").read_bytes() == train


@pytest.mark.parametrize(
    ("error", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "No space left", "x.py"), TorchportError)],
)
def test_what_ends_a_conversion_in_place_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException]
) -> None:
    root = project(tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    changed = len(preview_tree(root).data["changed"])
    assert changed > 1
    write, count = undo.write_atomically, itertools.count()

    def interrupted(path: Path, data: bytes) -> None:
        if next(count) == 1:  # the second file
            raise error
        write(path, data)

    monkeypatch.setattr(undo, "write_atomically", interrupted)
    with pytest.raises(raised) as caught:
        write_tree(root)
    assert getattr(caught.value, "hint", "The project is as it was.") == "The project is as it was."
    assert next(count) == 3  # the first file was written, and taken back
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_unreadable_file() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, whose parents are private to root
        root = project(Path(folder))
        (root / "train.py").chmod(0)
        Path(folder).chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root reads everything, nobody does not
        try:
            result = preview_tree(root)
        finally:
            os.seteuid(user)
    unreadable = [finding for finding in result.findings if finding.code == "TP900"]
    assert [finding.location.path for finding in unreadable if finding.location] == ["train.py"]
    assert "tool" in result.data["changed"]


def test_example_script_converts_without_residue() -> None:
    data = (ROOT / "examples" / "digits" / "train.py").read_bytes()
    conversion = convert_source(data, "train.py")
    left = [finding for finding in conversion.findings if finding.severity is not Severity.INFO]
    assert left == []
    assert b".cuda" not in conversion.output
    assert b'"cuda' not in conversion.output
    assert conversion.output.count(b"import torch_npu") == 1


def test_the_work_for_a_line_grows_with_its_length() -> None:
    """Not with its square: a line of a million characters is converted, too."""

    def conversion(calls: int) -> None:
        data = b"import torch\n" + b"; ".join(b"x%d = y.cuda()" % n for n in range(calls))
        assert convert_source(data, "a.py").output.count(b".npu()") == calls

    assert grows_with(lambda: conversion(250), lambda: conversion(1_000), 4)
