"""VNPU_FAULTS: each failure comes as hardware's runtime tells it, where and when the rule says, and never without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import python

from torchport import vnpu
from torchport.diagnose import diagnose_text

TRAIN = """
import torch
model = torch.nn.Linear(8, 8).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(4):
    loss = model(torch.ones(4, 8, device="npu")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.empty(64 << 20, device="npu"))
    print("step", step, loss.item(), flush=True)
"""
# rule: the code or class that torch_npu raises, steps that were done before, the row of knowledge/errors
FAULTS = {
    "oom@alloc:3": ("NPU out of memory", 1, "memory.device-full"),
    "exception@op:aclnnMm:2": ("error code is 507015", 1, "kernel.aicore"),
    "exception@op:aclnnMean": ("error code is 507035", 0, "kernel.vector"),
    "timeout@op:aclnnMean:2": ("error code is 507014", 1, "kernel.timeout"),
    "hang@op:aclnnMean:2": ("error code is 507046", 1, "kernel.stream-timeout"),
    "ecc@step:3": ("error code is 507054", None, "device.ecc"),
}
# No such time, no such operator, another rank, no collective.
HARMLESS = (
    "exception@op:aclnnMean:5; exception@op:aclnnMea; oom@alloc:1@rank:1;; linkdown@rank:0;timeout@collective:1; "
    "slow@rank:0:9000; slow@host:1"
)


def test_what_does_not_come_true_changes_nothing() -> None:
    plain, other = python(TRAIN), python(TRAIN, VNPU_FAULTS=HARMLESS)
    assert other.returncode == 0, other.stderr
    assert other.stdout == plain.stdout


# Each has a neighbour of its kind in `make test`.
FOR_MAKE_PORTS = ("exception@op:aclnnMm:2", "hang@op:aclnnMean:2")


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[pytest.mark.ports] * (rule in FOR_MAKE_PORTS)) for rule in FAULTS]
)
def test_a_fault_comes_as_on_hardware(rule: str) -> None:
    says, steps, row = FAULTS[rule]
    # Milliseconds: the limit is for what hangs alone, and a step of a busy machine takes seconds.
    ended = python(TRAIN, VNPU_FAULTS=rule, ACL_STREAM_TIMEOUT="20000" if rule.startswith("hang") else "1000000")
    assert ended.returncode == 1
    assert says in ended.stderr
    assert steps is None or ended.stdout.count("step") == steps
    assert diagnose_text(ended.stderr).data["row"] == row
    if not rule.startswith(("oom", "hang")):  # of a full memory torch_npu makes its own text
        assert f"rovoked by VNPU_FAULTS ({rule})" in ended.stderr, "nobody takes it for a defect of his machine"


def test_one_rank_of_a_job_has_it() -> None:
    rule = "exception@op:aclnnMean@rank:3"
    assert python(TRAIN, VNPU_FAULTS=rule, RANK="2").returncode == 0
    assert python(TRAIN, VNPU_FAULTS=rule, RANK="3").returncode == 1


MISTAKES = {
    "oom": "a rule is WHAT@WHERE",
    "oom@alloc:1@rank:1@x": "a rule is WHAT@WHERE",
    "fire@alloc:1": "nothing is called fire@alloc",
    "oom@op:aclnnAdd": "nothing is called oom@op",
    "oom@alloc": "0 numbers stand where 1 belong",
    "oom@alloc:1:2": "2 numbers stand where 1 belong",
    "oom@alloc:-1": '"-1" is not a whole number',
    "oom@alloc:ten": '"ten" is not a whole number',
    "oom@alloc:0": "times count from 1",
    "exception@op": "an operator's name is missing",
    "exception@op:": "an operator's name is missing",
    "slow@rank:1": "1 numbers stand where 2 belong",
    "ecc@step:1@host:2": "behind the second @ stands rank:R",
    "ecc@step:1; oom@alloc:99999999999999999999": '"99999999999999999999" is not a whole number',
}
# Each in a fork, where the machine is made anew.
READ = """
import json, os, sys
from ascendcl import code, message
for rule in json.loads(sys.stdin.read()):
    sys.stdout.flush()
    if os.fork() == 0:
        os.environ["VNPU_FAULTS"] = rule
        print(json.dumps([rule, code("aclInit", None), message()]), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_mistake_in_a_rule_is_refused_with_a_sentence() -> None:
    command = [sys.executable, "-c", READ]
    environ = os.environ | vnpu.environment()
    environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    right = ["", "oom@alloc:3 ;ecc@step:2@rank:0", HARMLESS]
    ended = subprocess.run(
        command, env=environ, input=json.dumps([*right, *MISTAKES]), capture_output=True, text=True, check=True
    )
    answers = {rule: (code, text) for rule, code, text in map(json.loads, ended.stdout.splitlines())}
    assert [answers[rule][0] for rule in right] == [0] * len(right)
    for rule, why in MISTAKES.items():
        code, text = answers[rule]
        assert code == 107000, rule
        assert f"VNPU_FAULTS: {why}" in text
        assert "ecc@step:N" in text, "and what there is"


def test_such_a_mistake_stops_the_start() -> None:
    program = "import torch\nprint('before')\ntorch.ones(1, device='npu')\nprint('after')"
    ended = python(program, VNPU_FAULTS="fire@alloc:1")
    assert (ended.returncode, ended.stdout) == (1, "before\n")
    assert "VNPU_FAULTS: nothing is called fire@alloc" in ended.stderr
    assert diagnose_text(ended.stderr).data["row"] == "environment.virtual-variable"
