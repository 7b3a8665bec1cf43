"""Operators of the NPU that the CPU computes in its place (`torchport bisect`)."""

from __future__ import annotations

import json

from forked import python

PROGRAM = """
import json
import torch, torch_npu
from torchport.record.on_cpu import OnCpu

told = []
names = {names}
library = torch.library.Library("aten", "IMPL")
library.impl("tanh", lambda x: torch.zeros_like(x), "PrivateUse1")  # a device that computes it wrongly
part = OnCpu(torch, names, "npu", lambda *seen: told.append(seen))
part.install()
x = torch.linspace(-2, 2, 12).reshape(3, 4).npu()
tanh = x.tanh()
running = torch.zeros(4).npu()
torch.nn.functional.batch_norm(x.view(3, 4), running, torch.ones(4).npu(), training=True)
lists = [torch.ones(2).npu(), torch.ones(3).npu()]
torch._foreach_add_(lists, 2)
y = x.clone()
same = y.mul_(3)
attention = torch.ones(1, 2, 4, 8, dtype=torch.float16).npu()
out = torch_npu.npu_fusion_attention(attention, attention, attention, 2, "BNSD")[0]
part.finish()
after = x.tanh()
print(json.dumps({{
    "tanh": torch.equal(tanh.cpu(), x.cpu().tanh()), "after": after.cpu().abs().max().item(),
    "device": tanh.device.type, "running": running.cpu().tolist(), "lists": [one.cpu().tolist() for one in lists],
    "same": same is y, "y": torch.equal(y.cpu(), x.cpu() * 3), "out": out.cpu().float().mean().item(),
    "seen": told[0][0], "refused": told[0][1],
}}))
"""


def run(names):
    ended = python(PROGRAM.format(names=names))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_the_cpu_computes_what_it_is_asked_to():
    said = run(
        ["aten::tanh", "aten::native_batch_norm", "aten::_foreach_add_", "aten::mul_", "npu::npu_fusion_attention"]
    )
    assert said["tanh"]
    assert said["device"] == "npu"
    assert said["after"] == 0  # it ends
    assert all(abs(value) > 0 for value in said["running"][1:])
    assert said["lists"] == [[3, 3], [3, 3, 3]]
    assert said["same"]
    assert said["y"]
    assert said["out"] == 1
    assert said["seen"]["aten::tanh"] == 1
    assert said["refused"] == []


def test_the_device_computes_the_rest():
    said = run(["aten::cos"])
    assert not said["tanh"]
    assert said["seen"]["aten::tanh"] == 1
    assert said["lists"] == [[3, 3], [3, 3, 3]]
    assert said["y"]
