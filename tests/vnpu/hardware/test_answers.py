"""Calls of torch and what a 910B answers to them (answers.toml), refused and passing neighbours alike.

All run in one process, in their order: what is refused leaves the device alive. Behind what ends it the next one goes
on."""

from __future__ import annotations

import functools
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from forked import python

ROWS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "answers.toml").read_text(encoding="utf-8"))
DEAD = 507  # 507xxx: the device is lost
PROGRAM = """
import json, re, threading, warnings
import torch, torch_npu
warnings.simplefilter("ignore")
F, d = torch.nn.functional, "npu"
def I(*sizes, dt=torch.float32):
    return torch.ones(*sizes, dtype=dt).to(d)  # made on the host: only the call itself is asked
def i64(*values):
    return torch.tensor(values, device=d)
def bil(dt):
    x = I(1, 1, 4, 4, dt=dt).requires_grad_()
    F.interpolate(x, scale_factor=2, mode="bilinear").sum().backward()
    return x.grad
def FA(**k):
    q, key, v = (k.pop(name, I(1, 4, 16, dt=torch.float16)) for name in "qkv")
    return torch_npu.npu_fusion_attention(q, key, v, k.pop("n", 2), k.pop("l", "BSH"), **k)[0]
def thread():
    out = []
    thread = threading.Thread(target=lambda: out.append(torch.ones(2, device="npu:1") + 1))
    thread.start()
    thread.join()
    return out[0]
c = None
found = {}
for name, call in json.loads(CALLS):
    try:
        c = I(4, 2, dt=torch.complex64)
        result = eval(call)
        result = result() if callable(result) else result
        torch.npu.synchronize()
        found[name] = 0
    except Exception as error:
        code = re.search(r"error code(?: is|:) ?(\\d+)", str(error))
        found[name] = [int(code[1]) if code else -1, str(error)]
        if found[name][0] // 1000 == 507:
            break
print(json.dumps(found))
"""


def answers(names: list[str]) -> dict[str, Any]:
    """Of these rows; those behind one that ends the device come from another process."""
    found: dict[str, Any] = {}
    while left := [name for name in names if name not in found]:
        calls = json.dumps([(name, ROWS[name]["call"]) for name in left])
        ended = python(PROGRAM.replace("CALLS", repr(calls)))
        assert ended.returncode == 0, ended
        found |= json.loads(ended.stdout.splitlines()[-1])
    return found


@functools.cache
def together() -> dict[str, Any]:
    return answers(list(ROWS))


@pytest.mark.parametrize("name", ROWS)
def test_the_answer_of_hardware(name: str) -> None:
    row = ROWS[name]
    found = together()[name]
    expected = row["answer"]
    if expected == 0:
        assert found == 0, f"{row['call']}: {found}"
        return
    assert found != 0, f"{row['call']} computes"
    code, said = found
    if expected == DEAD:
        code //= 1000
    assert code == expected if isinstance(expected, int) else expected in said, said


def test_rows_look_as_they_should() -> None:
    refused = sum(row["answer"] != 0 for row in ROWS.values())
    assert len(ROWS) > 240 and 100 < refused < len(ROWS) - 100
    assert all(set(row) == {"answer", "call"} for row in ROWS.values())
