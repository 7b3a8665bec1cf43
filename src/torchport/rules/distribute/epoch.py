"""TP212: `set_epoch` in the epoch loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule
from torchport.rules.distribute import on_script
from torchport.rules.distribute.loader import sampled_loaders, training_loops
from torchport.rules.distribute.script import EpochLoop, Script


def check_script(script: Script) -> Iterator[Finding]:
    """A finding for every loop around a loop that trains."""
    if script.is_distributed:
        return
    done: set[tuple[ast.stmt, str | None]] = set()
    for loader in sampled_loaders(script):
        for loop in training_loops(script, loader):
            for epochs in script.epoch_loops(loop, loader):
                if (epochs.node, epochs.loader) not in done:
                    done.add((epochs.node, epochs.loader))
                    yield _set_epoch(script, epochs)


def _set_epoch(script: Script, epochs: EpochLoop) -> Finding:
    target = epochs.node.target
    number = target.id if isinstance(target, ast.Name) else None
    head = ast.Expr(epochs.node.iter)
    head.lineno, head.col_offset = epochs.node.lineno, epochs.node.col_offset
    head.end_lineno, head.end_col_offset = epochs.node.iter.end_lineno, epochs.node.iter.end_col_offset
    if number is None or epochs.loader is None:
        return RULE.make_finding(
            script,
            head,
            "this loop trains in epochs, but its sampler has no number or no name here",
            hint="Call set_epoch(epoch) of the training loader's sampler at the start of every epoch.",
            safety=Safety.REPORT,
            severity=Severity.WARNING,
        )
    edit = script.insert_before(epochs.node.body[0], f"{epochs.loader}.sampler.set_epoch({number})")
    return RULE.make_finding(script, head, "the sampler is told the epoch, so that each has another order", [edit])


_LOADER = "from torch.utils.data import DataLoader\nloader = DataLoader(data, shuffle=True)\n"
_TABLE = "from torch.utils.data import DataLoader\nloaders = {'train': DataLoader(a), 'val': DataLoader(b)}\n"
_PHASES = """\
    for phase in ['train', 'val']:
        for x in loaders[phase]:
            if phase == 'train':
                loss(x).backward()
                optimizer.step()
"""
_BODY = "        loss(x).backward()\n        optimizer.step()\n"
RULE = Rule(
    code="TP212",
    title="the sampler is told the epoch (--distributed)",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="A DistributedSampler shuffles by epoch number: without it every epoch has the same order.",
    reference="https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
    check=on_script(check_script),
    rewrites=(
        (
            f"{_LOADER}for epoch in range(3):\n    for x in loader:\n{_BODY}",
            f"{_LOADER}for epoch in range(3):\n    loader.sampler.set_epoch(epoch)\n    for x in loader:\n{_BODY}",
        ),
        (
            f"{_LOADER}def train(batches):\n    for x in batches:\n{_BODY}for e in range(3):\n    train(loader)\n",
            f"{_LOADER}def train(batches):\n    for x in batches:\n{_BODY}for e in range(3):\n"
            "    loader.sampler.set_epoch(e)\n    train(loader)\n",
        ),
        (
            f"{_TABLE}for e in range(3):\n{_PHASES}",
            f'{_TABLE}for e in range(3):\n    loaders["train"].sampler.set_epoch(e)\n{_PHASES}',
        ),
    ),
    reports=(f"{_LOADER}for epoch, lr in plan:\n    for x in loader:\n{_BODY}",),
    ignores=(
        f"{_LOADER}for x in loader:\n    loss(x).backward()\n    optimizer.step()\n",
        f"{_LOADER}for epoch in range(3):\n    for x in loader:\n        model(x)\n",
        _TABLE.replace("'val': DataLoader(b)", "**more") + _PHASES.replace("    for", "for", 1),
    ),
)
