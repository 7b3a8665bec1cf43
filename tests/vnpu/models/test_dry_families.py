"""Every family in dry mode: the operators of an exact run in their order, and its peak to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from ascendcl import python

from models import FAMILIES
from torchport.predict.timeline import read

# Losses with boolean indices: in a dry run their results are as large as they can be.
DEPENDENT = ("ssd",)
QUICK = ("resnet18",)  # in `make test`; the others are of `make models`
STEPS = """
import sys
sys.path.insert(0, {folder!r})
import torch
from models import FAMILIES
from models.family import to
family = FAMILIES[{name!r}]
torch.manual_seed(0)
model = family.initial().npu()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    loss = family.loss(model, to(family.batch_of(step), "npu"))
    optimizer.zero_grad()
    loss.backward()
    {extra}
    optimizer.step()
torch.npu.synchronize()
print("PEAK", torch.npu.max_memory_allocated(), torch.npu.max_memory_reserved())
"""


def ran(folder: Path, name: str, mode: str, extra: str = "pass") -> tuple[str, list[object]]:
    log = folder / f"{mode}-{len(extra)}"
    program = STEPS.format(folder=str(Path(__file__).parents[1]), name=name, extra=extra)
    done = python(program, VNPU_MODE=mode, VNPU_TIMELINE=str(log), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    operators = [
        (task.name, [(tensor.shape, tensor.dtype) for tensor in task.tensors])
        for task in read(log).tasks
        if not task.name.startswith("Event")
    ]
    return next(line for line in done.stdout.splitlines() if line.startswith("PEAK")), operators


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAMILIES]
)
def test_dry_run_is_the_exact_one_without_kernels(name: str, tmp_path: Path) -> None:
    peak, operators = ran(tmp_path, name, "exact")
    assert len(operators) > 20
    dry_peak, dry_operators = ran(tmp_path, name, "dry")
    if name in DEPENDENT:
        assert dry_operators != operators
        assert int(dry_peak.split()[1]) >= int(peak.split()[1])
        return
    assert dry_operators == operators
    assert dry_peak == peak


def test_the_comparison_sees_an_operator_more(tmp_path: Path) -> None:
    """The negative control: a run with a gradient clipped is not the same run."""
    name = next(iter(FAMILIES))
    _, operators = ran(tmp_path, name, "dry")
    _, more = ran(tmp_path, name, "dry", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert more != operators
