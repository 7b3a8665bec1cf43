"""Every implemented operator has run, without an error, in a test of this folder."""

import os
import re
from pathlib import Path

import pytest
import torch

from torchport import vnpu

# A kernel has run, or a function without phases was called (a launch is traced as a call without arguments).
RUN = re.compile(r" (?:run (acl\w+) .*|call (acl\w+)\([^)].*) -> ok$")


def test_every_implemented_operator_has_run(request: pytest.FixtureRequest) -> None:
    torch.npu.synchronize()
    chosen = {item.path.name for item in request.session.items if item.path.parent == request.path.parent}
    absent = {path.name for path in request.path.parent.glob("test_*.py")} - chosen
    if absent or request.config.option.keyword or request.session.testsfailed:
        pytest.skip("only a passing run of the whole folder can tell")
    ran = set()
    with Path(os.environ["VNPU_TRACE"]).open(encoding="utf-8") as trace:
        for line in trace:
            if match := RUN.search(line.rstrip()):
                ran.add(match[1] or match[2])
    implemented = {row["name"] for row in vnpu.operators() if row["status"] == "implemented"}
    assert implemented - ran == set()
