"""One device against two ranks that hold parts of its layers: what is put together of real recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PARALLEL = """
import os

import torch
import torch.distributed as dist
from torch import nn

rank, world = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.cuda.set_device(rank)
if world > 1:
    dist.init_process_group("nccl")


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if world > 1 and not os.environ.get("FAULT"):
            dist.all_reduce(gradient)
        return gradient


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        if world > 1:
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def cut(full, dim):
    return nn.Parameter(full.detach().chunk(world, dim)[rank].clone())


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)
        self.up, self.up_bias, self.down = cut(up.weight, 0), cut(up.bias, 0), cut(down.weight, 1)
        self.bias = nn.Parameter(down.bias.detach().clone())

    def forward(self, x):
        hidden = torch.tanh(Copy.apply(self.norm(x)) @ self.up.T + self.up_bias)
        return x + Reduce.apply(hidden @ self.down.T) + self.bias


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), Block(16), nn.Linear(16, 4)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
generator = torch.Generator().manual_seed(1)
for step in range(6):
    x = torch.randn(32, 8, generator=generator).cuda()
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), torch.arange(32).cuda() % 4).backward()
    optimizer.step()
if world > 1:
    dist.destroy_process_group()
"""


def run(folder, *words, fault=""):
    return subprocess.run(
        [sys.executable, "-m", "torchport", *words],
        cwd=folder,
        env={**os.environ, "FAULT": fault},
        capture_output=True,
        text=True,
        check=False,
    )


def record(folder, name, ranks, *words, fault=""):
    options = ["--record", name, "--level", "none", "--nproc", str(ranks), *words]
    ended = run(folder, "run", "-q", *options, "train.py", fault=fault)
    assert ended.returncode == 0, ended.stderr


def compare(folder, *words):
    compared = run(folder, "compare", *words, "--json")
    assert compared.stdout, compared.stderr
    return compared.returncode, json.loads(compared.stdout)


def test_tensor_parallel_ranks_are_held_against_one_device(tmp_path):
    (tmp_path / "train.py").write_text(PARALLEL)
    record(tmp_path, "one", 1)
    record(tmp_path, "control", 1, "--control-of", "one")
    record(tmp_path, "many", 2)
    record(tmp_path, "wrong", 2, fault="1")
    code, result = compare(tmp_path, "one", "many", "--control", "control")
    assert code == 0, result["data"]["reason"]
    assert "10 of 10 parameters put together of 2 ranks, 3 of them of parts" in result["data"]["reason"]
    assert 0 < result["data"]["yardstick"]["spread"]["gradient"] < 1e-4
    code, result = compare(tmp_path, "one", "wrong")
    assert code == 1
    first = result["findings"][0]
    assert first["code"] == "TP369"
    assert first["evidence"]["step"] == 0
    # The gradient of what lies before the cut is a part of it on each rank.
    assert "that of 0.weight is" in first["message"]


def test_a_control_of_what_is_no_recording_is_refused(tmp_path):
    (tmp_path / "train.py").write_text(PARALLEL)
    ended = run(tmp_path, "run", "--record", "control", "--control-of", "nothing", "train.py")
    assert ended.returncode == 2
    assert "nothing is not a recording" in ended.stderr
