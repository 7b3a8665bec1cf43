"""The place of a draw or an upload has the same name in the original and in its port."""

import subprocess
import sys

import pytest

CODE = """
import sys, torch
from torchport.record.sites import Sites
sites = Sites([sys.argv[1]])
def draw():
    return sites.find_calling_line()
def forward():
    inner = draw()
    return inner
compiled = torch._dynamo.disable(forward)
print(forward())
print(compiled())
@torch.compile(backend="eager")
def real(x):
    torch._dynamo.graph_break()
    print(sites.find_calling_line())
    return x + 1
real(torch.ones(1))
"""


@pytest.mark.processes
def test_what_runs_compiled_has_the_line_that_calls_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(CODE)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert done.stdout.split() == ["train.py:6", "train.py:12", "train.py:18"]
