"""Every family in dry mode: the operators of an exact run in their order, and its peak to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from ascendcl import python

from models import FAMILIES
from torchport.predict.timeline import read_timeline

# Boolean indices: the shapes behind them are known to who knows how many are true, which the exact run tells here.
DEPENDENT = ("ssd", "experts")
QUICK = ("resnet18",)  # in `make test`; the others are of `make models`
STEPS = """
import contextlib, sys
sys.path.insert(0, {folder!r})
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from models import FAMILIES
from models.family import to

class Counting(TorchDispatchMode):
    # How many are true in each mask that something is indexed with, or whose places are asked for.
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.nonzero.default:
            counts.append(int((args[0] != 0).sum()))
        for arg in args:
            for each in arg if isinstance(arg, (list, tuple)) else ():
                if isinstance(each, torch.Tensor) and each.dtype is torch.bool:
                    counts.append(int(each.sum()))
        return function(*args, **(kwargs or {{}}))

counts = []
family = FAMILIES[{name!r}]
torch.manual_seed(0)
model = family.initial().npu()
optimizer = torch.optim.AdamW(model.parameters())
with Counting() if {counting!r} else contextlib.nullcontext():
    for step in range(2):
        loss = family.loss(model, to(family.batch_of(step), "npu"))
        optimizer.zero_grad()
        loss.backward()
        {extra}
        optimizer.step()
torch.npu.synchronize()
print("PEAK", torch.npu.max_memory_allocated(), torch.npu.max_memory_reserved())
print("COUNTS", ",".join(map(str, counts)))
"""


def started(name: str, extra: str = "pass", counting: bool = False, **variables: str) -> dict[str, str]:
    """What the program says, by the first word of the line."""
    program = STEPS.format(folder=str(Path(__file__).parents[1]), name=name, extra=extra, counting=counting)
    done = python(program, OMP_NUM_THREADS="1", **variables)
    assert done.returncode == 0, done.stderr
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in done.stdout.splitlines()}


def ran(folder: Path, name: str, mode: str, extra: str = "pass", counts: str = "") -> tuple[str, list[object]]:
    """The peak and the operators."""
    log = folder / f"{mode}-{len(extra)}-{len(counts)}"
    said = started(name, extra, VNPU_MODE=mode, VNPU_TIMELINE=str(log), VNPU_DRY_COUNTS=counts)
    # How large a result of unknown size is depends on data, and is what was asked to be known.
    operators: list[object] = []
    for task in read_timeline(log).tasks:
        if task.name.startswith("Event"):
            continue
        unknown = counts and task.name.startswith("aclnnNonzero")
        tensors = task.tensors[:1] if unknown else task.tensors
        operators.append((task.name, [(tensor.shape, tensor.dtype) for tensor in tensors]))
    return said["PEAK"], operators


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.models)
        for name in FAMILIES
        if name not in DEPENDENT
    ],
)
def test_dry_run_is_the_exact_one_without_kernels(name: str, tmp_path: Path) -> None:
    peak, operators = ran(tmp_path, name, "exact")
    assert len(operators) > 20
    dry_peak, dry_operators = ran(tmp_path, name, "dry")
    assert dry_operators == operators
    assert dry_peak == peak


@pytest.mark.models
@pytest.mark.parametrize("name", DEPENDENT)
def test_shapes_that_depend_on_data_are_those_of_the_exact_run_where_counts_are_known(
    name: str, tmp_path: Path
) -> None:
    counts = started(name, counting=True)["COUNTS"]
    assert counts.count(",") > 3
    peak, operators = ran(tmp_path, name, "exact", counts=counts)
    dry_peak, dry_operators = ran(tmp_path, name, "dry", counts=counts)
    assert dry_operators == operators
    assert dry_peak == peak
    # Without them, the same up to the first result of unknown size, and never less memory.
    largest_peak, largest = ran(tmp_path, name, "dry")
    _, exact = ran(tmp_path, name, "exact")
    first = next(i for i, operator in enumerate(exact) if operator[0].startswith("aclnnNonzero"))  # type: ignore[index]
    assert largest[:first] == exact[:first] and largest != exact
    assert int(largest_peak.split()[0]) >= int(peak.split()[0])


def test_the_comparison_sees_an_operator_more(tmp_path: Path) -> None:
    """The negative control: a run with a gradient clipped is not the same run."""
    name = next(iter(FAMILIES))
    _, operators = ran(tmp_path, name, "dry")
    _, more = ran(tmp_path, name, "dry", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert more != operators
