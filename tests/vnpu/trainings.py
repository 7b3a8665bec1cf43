"""Small trainings in functions, and `torchport` run on them."""

from __future__ import annotations

import os
import subprocess
import sys

START = """
import torch
from torch import nn

torch.manual_seed(0)


def make(p=0.1):
    return nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(p), nn.Linear(64, 4)).cuda()


def loss(net):
    return nn.functional.cross_entropy(net(torch.randn(16, 8).cuda()), torch.randint(0, 4, (16,)).cuda())


def fit(net, optimizer, steps=1, schedule=None):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def evaluate(net):
    with torch.no_grad():
        for _ in range(4):
            net(torch.randn(16, 8).cuda())


"""


def run(folder, *words):
    environment = {**os.environ, "COLUMNS": "300"}
    return subprocess.run(
        [sys.executable, "-m", "torchport", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
