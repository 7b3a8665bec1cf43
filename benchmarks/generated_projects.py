"""Projects of any size for benchmarks: packages whose modules import each other, a third of them with CUDA."""

from __future__ import annotations

from pathlib import Path

_PER_PACKAGE = 50  # modules
_MODEL = '''\
"""Module {n}: a block and what it is made of."""

import torch
from torch import nn

from {package} import settings
from {package}.part{before} import Block{before}, scaled{before}


class Block{n}(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner = Block{before}(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.fc(self.inner(x)))


def scaled{n}(x, factor=1.0):
    return scaled{before}(x) * factor


def build{n}(device=settings.DEVICE):
    block = Block{n}().cuda()
    other = Block{before}().to(device)
    x = torch.ones(2, 8, device="cuda")
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return block(x.cuda()) + other(scaled{n}(x, 2.0).to(device))
'''
_PLAIN = '''\
"""Module {n}: plain Python."""

import os

from {package}.part{before} import scaled{before}


class Block{n}:
    def __init__(self, width=8):
        self.width = width
        self.names = [f"{{os.getpid()}}-{{i}}" for i in range(width)]

    def __call__(self, x):
        return x


def scaled{n}(x, factor=1.0):
    return scaled{before}(x) * factor
'''
_FIRST = "import torch\n\n\nclass Block0(torch.nn.Identity):\n    pass\n\n\ndef scaled0(x):\n    return x\n"
_SETTINGS = 'import torch\n\nDEVICE = "cuda" if torch.cuda.is_available() else "cpu"\n'


def write_project(folder: Path, files: int) -> None:
    """Write a project of exactly `files` Python files below `folder`."""
    left = files
    for number in range(-(-files // _PER_PACKAGE)):
        package = folder / f"package{number}"
        package.mkdir(parents=True)
        parts = {"__init__.py": "", "settings.py": _SETTINGS, "part0.py": _FIRST}
        for n in range(1, _PER_PACKAGE - 2):
            text = _MODEL if n % 3 == 0 else _PLAIN
            parts[f"part{n}.py"] = text.format(n=n, before=n - 1, package=package.name)
        for name in list(parts)[:left]:
            (package / name).write_text(parts[name], encoding="utf-8")
        left -= len(parts)


def write_long_line(path: Path, calls: int = 50_000) -> None:
    """Write a file of about 1 MB with `calls` calls of `.cuda()` on one line."""
    body = "; ".join(f"t{n:05} = u{n:05}.cuda()" for n in range(calls))
    path.write_text(f"import torch\n{body}\n", encoding="utf-8")
