"""A project of files that are made to break a converter: one finding each, and the honest file beside them is done."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from torchport.convert import convert_source, convert_tree, pool, preview_tree
from torchport.findings import Result

HONEST = "import torch\ntorch.cuda.init()\n"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is given up for the processor time that it takes alone: by TP904, which no file here may have but a large
    one. The limit on the clock would be reached on a machine that has much else to do."""
    monkeypatch.setattr(pool, "_PATIENCE", 10_000)


def notebook(*sources: object) -> str:
    cells = [{"cell_type": "code", "source": source} for source in sources]
    return json.dumps({"cells": cells, "nbformat": 4})


# name: (content, code of the finding; None where the file is simply left as it is)
FILES: dict[str, tuple[bytes, str | None]] = {
    "brackets.py": (b"# cuda\nx = " + b"(" * 100_000, "TP901"),
    "lists.py": (b"# cuda\nx = " + b"[" * 10_000 + b"]" * 10_000, "TP901"),
    "attributes.py": (b"import torch\ntorch.cuda" + b".a" * 50_000 + b"\n", "TP901"),
    "lambdas.py": (b"# cuda\nx = " + b"lambda: " * 50_000 + b"0\n", "TP901"),
    "nested.py": (
        b"# cuda\n" + b"".join(b" " * depth + b"def f():\n" for depth in range(99)) + b" " * 99 + b"0\n",
        None,
    ),
    "large.py": (b"# cuda\n" + b"x = 1\n" * (50 * 2**20 // 6), "TP904"),
    "nul.py": (b"cuda = 1\x00\n", "TP901"),
    "binary.py": (b"\x7fELF cuda " + bytes(range(256)) * 100, "TP902"),
    "codec.py": (b"# coding: undefined\ncuda\n", "TP902"),
    "rot.py": (b"# coding: rot13\ncuda\n", "TP902"),
    "utf16.py": ("# cuda\n".encode("utf-16"), "TP902"),
    "utf16.yaml": ("device: cuda\n".encode("utf-16"), None),
    "odd_utf16.yaml": ("device: cuda\n".encode("utf-16") + b"\0", "TP902"),
    "f_strings.py": (b"# cuda\nx = " + b'f"{' * 200 + b'"' * 200 + b"\n", "TP901"),
    "quotes.py": (b"# cuda\n'''" + b"x'" * 100_000 + b"\n", "TP901"),
    "deep.json": (b'{"device": "cuda", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", None),
    "deep.ipynb": (b'{"cells": ' + b"[" * 500_000 + b'"cuda"' + b"]" * 500_000 + b"}", None),
    "unclosed.ipynb": (b'{"cells": [{"cell_type": "code", "source": ["cuda', "TP901"),
    "unbalanced.ipynb": (b'{"cells": []}}}}} "cuda"', "TP901"),
    "cells.ipynb": (notebook(*["x.cuda()\n"] * 2_000).encode(), None),
    "escapes.ipynb": (notebook("# cuda\n" + "\\u" * 100_000).encode(), "TP901"),
    "numbers.ipynb": (notebook(1, None, {"cuda": 1}, ["cuda", ["cuda"]]).encode(), None),
    "tabs.yaml": (b"device: cuda" + b"\t" * 1_000_000 + b"x\n", None),
    "lines.sh": (b"CUDA_VISIBLE_DEVICES=0 " * 200_000, None),
}


def codes(result: Result, name: str) -> set[str]:
    found = (one for one in result.findings if one.location and one.location.path == name)
    return {one.code for one in found if one.code.startswith("TP9")}


@pytest.mark.parametrize("name", FILES)
def test_a_finding_and_no_more(tmp_path: Path, name: str) -> None:
    content, code = FILES[name]
    (tmp_path / name).write_bytes(content)
    (tmp_path / "honest.py").write_text(HONEST)
    result = preview_tree(tmp_path)
    assert "honest.py" in result.data["changed"]
    assert codes(result, name) == ({code} if code else set())


def test_a_sum_of_many_terms_is_honest(tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text("import torch\nx = " + " + ".join(["y"] * 20_000) + "\ntorch.cuda.init()\n")
    result = preview_tree(tmp_path)
    assert codes(result, "sum.py") in ({"TP901"}, set())
    assert (result.data["changed"] == ["sum.py"]) is not bool(codes(result, "sum.py"))


def test_links_pipes_and_folders(tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "folder.py").mkdir(parents=True)
    (root / "folder.py" / "inner.py").write_text(HONEST)
    (root / "loop").symlink_to(root)
    (root / "self.py").symlink_to("self.py")
    (root / "dangling.py").symlink_to("nowhere.py")
    (root / "outside.py").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe.py")
    result = convert_tree(root, tmp_path / "out")
    assert result.data["changed"] == ["folder.py/inner.py"]
    assert codes(result, "pipe.py") == {"TP900"}
    assert os.readlink(tmp_path / "out" / "self.py") == "self.py"
    assert not (tmp_path / "out" / "pipe.py").exists()


def test_unreadable_files_and_folders() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, whose parents are private to root
        root = Path(folder)
        root.chmod(0o755)
        (root / "closed").mkdir()
        for name in ("secret.py", "closed/inner.py", "honest.py"):
            (root / name).write_text(HONEST)
        (root / "secret.py").chmod(0)
        (root / "closed").chmod(0)
        convert_source(HONEST.encode(), "warm.py")  # nobody may not be able to read what Python imports on the way
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root reads everything, nobody does not
        try:
            result = preview_tree(root)
        finally:
            os.seteuid(user)
            (root / "closed").chmod(0o755)
    assert result.data["changed"] == ["honest.py"]
    assert codes(result, "secret.py") == {"TP900"}
    assert codes(result, "closed") == {"TP900"}
