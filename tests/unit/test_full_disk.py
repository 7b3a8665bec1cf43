"""A write that fails half-way, as on a full disk: the error names the file that was being written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.findings import copy_file

# Files that become no larger than 50 kB: the write that would make them so is cut off, and the next one fails.
PROGRAM = """
import os, resource, sys
from pathlib import Path
from torchport.findings import copy_file, write_atomically
from torchport.port import mirror
from torchport.record.recording import Journal

place = Path("new")
place.mkdir()
data = bytes(100_000)
Path("old").write_bytes(data)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))

def journal():
    journal = Journal(place)
    for _ in range(100_000 // 50):
        journal.write_event("note", text="x" * 50)

writes = {
    "journal": journal,
    "whole": lambda: write_atomically(place / "whole", data),
    "copy": lambda: copy_file(Path("old"), place / "copy"),
    "view": lambda: mirror.copy_file("old", "new/view"),
}
try:
    writes[sys.argv[1]]()
except OSError as error:
    print(error.filename, error.filename2, error.strerror, sep="|")
"""


@pytest.mark.parametrize("what", ["journal", "whole", "copy", "view"])
def test_the_file_that_does_not_fit_is_named(tmp_path: Path, what: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, what], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    name, second, why = ended.stdout.strip().split("|")
    if what == "journal":
        (made,) = tmp_path.glob("new/**/*.jsonl")
        assert os.path.samefile(made, tmp_path / name) and made.stat().st_size == 50_000
    else:
        assert name == f"new/{what}"
    assert (second, why) == ("None", "File too large")
    assert not (tmp_path / "new" / "whole").exists()


def test_a_source_that_is_missing_is_named_itself(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        copy_file(tmp_path / "none", tmp_path / "new")
    assert Path(caught.value.filename) == tmp_path / "none"
