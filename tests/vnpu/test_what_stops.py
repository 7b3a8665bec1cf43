"""The unmodified torch_npu stops where `analyze` says so, and works where it says nothing.

A case that no longer stops has a rule to lose, which would be noise; one that stops now has a finding to gain.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import forked
import pytest

CASES = tomllib.loads((Path(__file__).parents[1] / "unit" / "stop_cases.toml").read_text())["case"]
HEAD = "import torch, torch_npu, torch.nn as nn, torch.nn.functional as F\nd = 'npu'\n"
END = "\ntorch.npu.synchronize()\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["code"])
def test_stops_and_works(case: dict[str, str]) -> None:
    works = forked.python(HEAD + case["works"] + END)
    assert works.returncode == 0, works.stderr
    if case.get("cpu", True):  # so that it is the NPU that stops it
        on_cpu = HEAD.replace("torch_npu, ", "").replace("npu", "cpu") + case["stops"].replace("'npu'", "'cpu'")
        assert (ended := forked.python(on_cpu)).returncode == 0, ended.stderr
    assert forked.python(HEAD + case["stops"] + END).returncode != 0
