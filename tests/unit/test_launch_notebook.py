"""Notebooks that are run: what of them is Python, and where a line of it is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.launch import parse_launch
from torchport.launch.notebook import as_script, describe_left_out, locate_cell_line, read_code_cells


def notebook(*sources: str) -> bytes:
    made = [{"cell_type": "code", "source": text.splitlines(keepends=True)} for text in sources]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# no"]}, *made], "nbformat": 4}).encode()


FIRST = "!nvidia-smi\n%matplotlib inline\nx = 1\n"
SECOND = "y = 'ö'\nif x:\n    %env A=1\n    %time x += 1\n"
THIRD = "%%bash\nls\n"


def test_a_script_line_for_line() -> None:
    data = notebook(FIRST, SECOND, THIRD, "z = x")
    text = as_script(data).decode()
    space: dict[str, object] = {}
    exec(compile(text, "nb", "exec"), space)
    assert (space["x"], space["y"], space["z"]) == (2, "ö", 2)  # what is timed is run, once
    lines = text.split("\n")
    for line, where in {3: "cell 1, line 3", 4: "cell 2, line 1", 7: "cell 2, line 4"}.items():
        assert locate_cell_line(data, line) == where
    last = next(number for number, line in enumerate(lines, 1) if line == "z = x")
    assert locate_cell_line(data, last) == "cell 4, line 1"


def test_what_is_left_out_is_told() -> None:
    said = [note for cell in read_code_cells(notebook(FIRST, SECOND, THIRD)) for note in describe_left_out(cell)]
    assert said == [
        "cell 1, line 1: left out, it is IPython's: !nvidia-smi",
        "cell 1, line 2: left out, it is IPython's: %matplotlib inline",
        "cell 2, line 3: left out, it is IPython's: %env A=1",
        "cell 3: left out, it is not Python: %%bash",
    ]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"hello", "the notebook is not JSON"),
        (b'{"cells": [}', "the notebook is not JSON"),
        (b"\xff{}", "the notebook is not JSON"),
        (b"[]", "has no cells"),
        (b'{"worksheets": []}', "has no cells"),
        (notebook(), "has no code"),
        (notebook("%%bash\nls"), "has no code"),
    ],
)
def test_what_is_no_notebook(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "nb.ipynb").write_bytes(data)
    with pytest.raises(TorchportError, match=says) as error:
        parse_launch(["nb.ipynb"], folder=tmp_path)
    assert error.value.message.startswith("nb.ipynb: ") and error.value.exit_code == 2


def start(folder: Path, *sources: str) -> subprocess.CompletedProcess[str]:
    (folder / "nb.ipynb").write_bytes(notebook(*sources))
    launch = parse_launch(["nb.ipynb", "--lr", "1"], folder=folder)
    assert (launch.script, launch.kind, launch.arguments) == (folder / "nb.ipynb", "notebook", ("--lr", "1"))
    return subprocess.run(launch.command, capture_output=True, text=True, check=False, cwd=folder)


def test_cells_share_their_names_and_have_stand_ins(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7")
    ended = start(
        tmp_path,
        "from __future__ import annotations\nimport sys, beside\n",
        "def f(x: Missing): return beside.value\n",
        "from IPython.display import clear_output, display as show\nclear_output(wait=True)\n",
        "get_ipython().run_line_magic('matplotlib', 'inline')\ndisplay(f(1))\nprint(__name__, sys.argv)\n",
    )
    assert ended.stderr == ""
    assert ended.stdout == "7\n__main__ ['nb.ipynb', '--lr', '1']\n"


def test_an_error_names_its_cell_and_line(tmp_path: Path) -> None:
    ended = start(tmp_path, "%matplotlib inline\n", "x = 0\n\n1 / x\n")
    assert ended.returncode == 1
    assert ended.stderr.startswith("nb.ipynb, cell 1, line 1: left out, it is IPython's: %matplotlib inline\n")
    assert 'File "nb.ipynb, cell 2", line 3, in <module>\n' in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


def test_the_source_of_a_function_is_found(tmp_path: Path) -> None:
    """torch.jit.script and others read it."""
    ended = start(tmp_path, "import inspect\n", "def f():\n    return 1\nprint(inspect.getsource(f))")
    assert ended.stdout == "def f():\n    return 1\n\n"


def test_the_exit_status_is_the_notebooks(tmp_path: Path) -> None:
    assert start(tmp_path, "import sys\nsys.exit(5)").returncode == 5
