"""A run on the NPU whose numbers run out of range: the last steps before it are kept, and what the chip says is noted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torchport.record.operators.reading import Operators
from torchport.record.recording import Recording

TRAIN = """
import torch

model = torch.nn.Linear(4, 4, bias=False).cuda().half()
torch.nn.init.ones_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for step in range(6):
    optimizer.zero_grad()
    x = torch.full((2, 4), 30000.0 if step == 3 else 1.0).cuda().half()
    loss = model(x).sum() * 1e-3
    loss.backward()
    optimizer.step()
"""


# The first has the largest number in place of infinity, and a flag that is read at the end of each step; the second has
# infinity, and refuses the flag.
@pytest.mark.parametrize(
    ("chip", "flagged", "word"), [("Ascend910A", [3], "saturated"), ("Ascend910B1", [], "infinite")]
)
def test_the_steps_before_an_overflow_are_kept_on_either_chip(tmp_path, chip, flagged, word):
    (tmp_path / "train.py").write_text(TRAIN)
    words = ["run", "--record", "rec", "--on", "npu", "--keep-last", "2", "train.py"]
    ended = subprocess.run(
        [sys.executable, "-m", "torchport", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VNPU_SOC": chip},
    )
    assert ended.returncode == 0, ended.stderr
    recorded = Recording.from_directory(tmp_path / "rec")
    assert recorded.steps == 6
    assert [event["step"] for event in recorded.of_kind("overflowed")] == flagged
    (found,) = recorded.of_kind("overflow")
    assert found["step"] == 3
    assert "aten::matmul (forward) in Linear makes " in found["text"] and f" {word}; given " in found["text"]
    assert "the last 2 steps are kept, later ones are not" in ended.stderr
    (process,) = Operators.read(tmp_path / "rec").processes
    assert process.steps == [2, 3]
