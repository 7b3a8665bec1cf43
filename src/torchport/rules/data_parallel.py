"""TP202: `torch.nn.DataParallel` and the functions that it is made of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.source.module import Module

NAMES = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
    "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.data_parallel.data_parallel",
)
_PIECES = tuple(
    f"torch.nn.parallel.{module}{name}"
    for name, module_of in (
        ("replicate", "replicate."),
        ("scatter", "scatter_gather."),
        ("gather", "scatter_gather."),
        ("parallel_apply", "parallel_apply."),
    )
    for module in ("", module_of)
)
_COUNTS = re.compile(
    r"device_count|n_?gpus?|num_?gpus?|gpus|device_ids|multi|parallel|distributed|world", re.IGNORECASE
)


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every call; a note where only a run on several devices comes to it."""
    for call in module.iter_nodes(ast.Call):
        name = module.resolve_name(call.func)
        if name in NAMES:
            what, alone = "DataParallel", _is_guarded(module, call) or _of_one(call)
        elif name in _PIECES:
            what, alone = name, False
        else:
            continue
        yield RULE.make_finding(
            module,
            call,
            f"{what} on several NPUs is not among what torch_npu supports",
            hint="On one NPU (`torchport run --device-list 0`, ASCEND_RT_VISIBLE_DEVICES=0) it only passes its calls "
            "on. For several, `torchport convert PROJECT -o OUT --distributed --main FILE --model NAME` rewrites the "
            "script for DistributedDataParallel, one process per NPU.",
            severity=Severity.INFO if alone else None,
        )


def _is_guarded(module: Module, call: ast.Call) -> bool:
    """Whether the call stands behind a question such as `torch.cuda.device_count() > 1`."""
    inner: ast.AST = call
    for above in module.names.iter_ancestors(call):
        if isinstance(above, ast.If | ast.IfExp) and inner is not above.test and _asks_for_devices(above.test):
            return True
        inner = above
    return False


def _asks_for_devices(test: ast.expr) -> bool:
    names = [
        part.attr if isinstance(part, ast.Attribute) else part.id
        for part in ast.walk(test)
        if isinstance(part, ast.Attribute | ast.Name)
    ]
    return any(_COUNTS.search(name) for name in names)


def _of_one(call: ast.Call) -> bool:
    """Whether the call names one device: `device_ids=[0]`."""
    ids = [keyword.value for keyword in call.keywords if keyword.arg == "device_ids"] + call.args[1:2]
    return bool(ids) and isinstance(ids[0], ast.List | ast.Tuple) and len(ids[0].elts) == 1


RULE = Rule(
    code="TP202",
    title="DataParallel has to become DistributedDataParallel",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="torch_npu's list of supported interfaces leaves DataParallel and its parts out, though 2.13.0 has code for "
    "them: one process that drives several NPUs is slower than a process for each, and nobody promises that it works. "
    "With one device it does nothing, so that a run on one NPU is not affected.",
    reference="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    words=(*CUDA, b"dataparallel", b"nn.parallel"),
    check=check_module,
    rewrites=(),
    reports=("import torch.nn as nn\nmodel = nn.DataParallel(model.cpu())  # cuda\n",),
    ignores=("from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(model)  # cuda\n",),
)
