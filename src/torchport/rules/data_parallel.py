"""TP202: `torch.nn.DataParallel`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

NAMES = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
    "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.data_parallel.data_parallel",
)


def check(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every call."""
    for call in module.all(ast.Call):
        if module.qualified(call.func) in NAMES:
            yield RULE.finding(
                module, call, "DataParallel does not run on several NPUs",
                hint="On one NPU (ASCEND_RT_VISIBLE_DEVICES=0) it only passes its calls on. For several, "
                "`torchport convert PROJECT -o OUT --distributed --main FILE --model NAME` rewrites the script for "
                "DistributedDataParallel, one process per NPU.",
            )  # fmt: skip


RULE = Rule(
    code="TP202",
    title="DataParallel has to become DistributedDataParallel",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="DataParallel drives several devices from one process with CUDA's broadcast and gather; the NPU has no such "
    "path. With one device it does nothing, so that a run on one NPU is not affected.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    check=check,
    rewrites=(),
    unchanged=(
        "import torch.nn as nn\nmodel = nn.DataParallel(model.cpu())  # cuda\n",
        "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(model)  # cuda\n",
    ),
)  # fmt: skip
